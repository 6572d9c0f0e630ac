// Lists of CPUs as Linux and people write them: "0-3,8,10-11".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::container {

/// The ids in the order given. `place` names the option in errors. Refused: an empty list or item, anything but numbers
/// below 65536 and ranges that run upwards, a CPU named twice.
Result<std::vector<int>> parse_cpu_list(std::string_view text, const std::string& place);

/// The other way round; `cpus` ascending.
std::string cpu_list_text(std::span<const int> cpus);

}  // namespace waste::container
