// How fast a model runs here: prompts and single tokens, next to what its bytes cost at this machine's memory
// rate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/profile.h"
#include "engine/session.h"

namespace waste::engine {

struct BenchOptions {
    std::vector<int64_t> prompt_lengths{64, 512};  ///< each at least 1
    int64_t decode_tokens = 32;                    ///< after the last prompt; 0: none
    int repeats = 3;                               ///< of each prompt, at least 1
    uint64_t memory_rate_bytes = uint64_t{1}
                                 << 30;  ///< to measure the memory's rate with, before anything else
    bool profile = false;  ///< fills the profiles; reading the clock costs decoding a percent or so
};

/// One kind of work, done several times. Times are in order; the median decides.
struct BenchRow {
    int64_t position;             ///< tokens in the sequence before it
    int64_t tokens;               ///< of one time
    std::vector<double> seconds;  ///< of each time
    Profile profile;              ///< of all times together, where asked for
    StreamCounters stream;        ///< of all times together

    double median_seconds() const;
    double tokens_per_second() const;
    int64_t all_tokens() const;  ///< of all times together
    double all_seconds() const;
};

struct BenchResult {
    std::vector<BenchRow> prompts;
    BenchRow decode;                 ///< tokens 0 where none was asked for
    uint64_t logits_hash;            ///< XXH3-64 of the last logits: equal work gives equal hashes
    double memory_bytes_per_second;  ///< what the threads read together, from huge pages where granted
    uint64_t decode_bytes;  ///< a token reads and writes at the end of the decoding; all experts in memory
    int64_t prompt_multiply_adds;  ///< of a prompt token in matrices, without lm_head

    /// The time that decode_bytes take at the memory rate, over the time taken: 1 is the limit.
    double decode_share_of_memory_rate() const;
};

/// Clears the session and leaves it in use. Token ids are arbitrary and the same each time. Before the first row
/// a prompt is run untimed, so that mapped weights are in memory if they fit. `go_on(what)` is called before
/// every block of a prompt and every token; false ends with ErrorKind::interrupted.
Result<BenchResult> run_bench(const Model& model, Session& session, const BenchOptions& options,
                              const std::function<bool(const std::string&)>& go_on);

/// Bytes a second that `threads` threads read together, over and over, from `bytes` of memory: far more than caches hold.
Result<double> measure_memory_rate(int threads, uint64_t bytes);

}  // namespace waste::engine
