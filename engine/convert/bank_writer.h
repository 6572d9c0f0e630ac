// experts-*.bin, one bank a layer.
#pragma once

#include "engine/convert/write_context.h"

namespace waste::engine {

/// Writes the bank unless an earlier run has, and sets its table hash.
Result<void> write_bank(const WriteContext& context, container::BankEntry& bank);

}  // namespace waste::engine
