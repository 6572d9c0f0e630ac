// What the sections of a session file hold (docs/container-format.md): their names, and floats in and out of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "container/result.h"
#include "container/section_file.h"

namespace waste::engine {

/// How a section's numbers are written. bf16 takes half the room and is not exact.
enum class StateFormat : uint32_t { f32 = 1, bf16 = 2 };

enum class SectionKind : uint32_t {
    about = 1,    ///< JSON: position, turns, seeds, sampling, checkpoints
    tokens = 2,   ///< int32 [position]
    chunked = 3,  ///< uint8 [position / 64]: History::chunked
    recurrent =
        4,  ///< index: which KDA layer, counted among them; first: which copy. State and conv rings as in memory
    logits = 5,   ///< [vocab_size], after the last token; first: which copy
    latents = 6,  ///< index: an MLA layer; first: a multiple of kLatentBlock. Latents, then rope parts
};

/// Which copy: the state at the end, or a checkpoint.
inline constexpr int64_t kPresentState = 0;
constexpr int64_t checkpoint_copy(uint32_t index) {
    return int64_t{index} + 1;
}

/// Positions of a latents section, the last one of a layer aside: whole ones are carried over from save to save.
inline constexpr int64_t kLatentBlock = 4096;

container::SectionName section_name(SectionKind kind, int64_t index = 0, int64_t first = 0);
/// For messages: "KDA layer 3", "latents of layer 5 from position 4096".
std::string section_text(const container::SectionName& name);

/// Writes floats in a format; the numbers lie in up to two places.
Result<void> add_floats(container::SectionWriter& writer, const container::SectionName& name,
                        StateFormat format, std::span<const float> values, std::span<const float> more = {});
/// Fills both spans; a section of other size or format is refused by name, a missing one too.
Result<void> read_floats(const container::SectionFile& file, const container::SectionName& name,
                         std::span<float> values, std::span<float> more = {});

/// One copy of the recurrent part, `layers` equal parts (SequenceState::recurrent).
Result<void> read_recurrent(const container::SectionFile& file, int64_t copy, int64_t layers,
                            std::span<float> recurrent);

}  // namespace waste::engine
