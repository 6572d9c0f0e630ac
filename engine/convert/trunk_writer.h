// trunk.bin, written layer by layer.
#pragma once

#include "engine/convert/write_context.h"

namespace waste::engine {

/// Writes what the journal does not know yet, and sets the hashes of `layout.tensors`.
Result<void> write_trunk(const WriteContext& context, ContainerLayout& layout);

}  // namespace waste::engine
