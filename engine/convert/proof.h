// A conversion proven: the release is encoded again and compared with what lies in the container, byte for
// byte.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "container/reader.h"
#include "engine/parallel.h"

namespace waste::engine {

struct ProofOptions {
    std::string source;   ///< folder of the release
    int64_t samples = 2;  ///< layers of each kind, and experts of each bank
    bool all = false;     ///< everything, whatever `samples` says
    uint64_t seed = 1;    ///< the same seed chooses the same samples
    int threads = available_cpus();
};

struct ProofReport {
    std::vector<int64_t> layers;  ///< whose trunk tensors were compared; the embedding and output always are
    int64_t tensors = 0;
    int64_t experts = 0;
    uint64_t bytes = 0;  ///< of the container, compared
    std::vector<container::Damage> differences;
};

/// `progress(done, total)` in bytes of the container; returning false stops. A release of another model is an
/// error; one of this model whose bytes differ is a report with differences.
Result<ProofReport> prove_conversion(const container::Container& container, const ProofOptions& options,
                                     const std::function<bool(uint64_t, uint64_t)>& progress);

}  // namespace waste::engine
