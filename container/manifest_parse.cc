#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "container/checksum.h"
#include "container/manifest.h"
#include "container/text.h"

namespace waste::container {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxCarriedBytes = uint64_t{256} << 20;
constexpr int64_t kMaxLayer = 1 << 20;
constexpr size_t kFingerprintDigits = 32;

/// Reads typed fields of one JSON object and remembers the first that is missing or wrong. After an error
/// every read returns a harmless value, so that a caller checks once, at the end.
class Fields {
  public:
    Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
        if (!object.is_object()) refuse(ErrorKind::corrupt, "must be an object");
    }

    std::string text(const char* key) {
        const Json* value = find(key, &Json::is_string, "a string");
        return value != nullptr ? value->get<std::string>() : std::string();
    }
    uint64_t number(const char* key) {
        const Json* value = find(key, &Json::is_number_unsigned, "a whole number that is not negative");
        return value != nullptr ? value->get<uint64_t>() : 0;
    }
    int64_t number_up_to(const char* key, int64_t most) {
        const uint64_t value = number(key);
        if (value <= static_cast<uint64_t>(most)) return static_cast<int64_t>(value);
        refuse(ErrorKind::corrupt, fmt::format("{} is {}, more than {}", key, value, most));
        return 0;
    }
    uint64_t hash(const char* key) {
        const auto value = from_hex(text(key));
        if (!value)
            refuse(ErrorKind::corrupt, fmt::format("{} must be 16 lower-case hexadecimal digits", key));
        return value.value_or(0);
    }
    std::string file_name(const char* key) {
        std::string name = text(key);
        if (!is_plain_file_name(name)) {
            refuse(ErrorKind::corrupt,
                   fmt::format("{} \"{}\" is not a plain file name", key, printable(name)));
        }
        return name;
    }
    kernels::Format format(const char* key) {
        const std::string name = text(key);
        const auto found = kernels::format_from_name(name);
        if (!found) {
            refuse(ErrorKind::unsupported, fmt::format("{} \"{}\" is not known", key, printable(name)));
        }
        return found.value_or(kernels::Format::f32);
    }
    Layout layout(const char* key) {
        const std::string name = text(key);
        if (name == "rows") return Layout::rows;
        if (name != "panels") {
            refuse(ErrorKind::unsupported, fmt::format("{} \"{}\" is not known", key, printable(name)));
        }
        return Layout::panels;
    }
    const Json& array(const char* key) {
        static const Json kEmpty = Json::array();
        const Json* value = find(key, &Json::is_array, "an array");
        return value != nullptr ? *value : kEmpty;
    }
    const Json& object(const char* key) {
        static const Json kEmpty = Json::object();
        const Json* value = find(key, &Json::is_object, "an object");
        return value != nullptr ? *value : kEmpty;
    }

    void expect(bool holds, const std::string& message) {
        if (!holds) refuse(ErrorKind::corrupt, message);
    }
    void refuse(ErrorKind kind, std::string message) {
        if (!error_) error_ = Error{kind, place_, std::move(message)};
    }
    void rename(std::string place) { place_ = std::move(place); }
    Result<void> result() const {
        if (error_) return tl::unexpected<Error>(*error_);
        return {};
    }

  private:
    const Json* find(const char* key, bool (Json::*is_type)() const noexcept, const char* type) {
        if (error_) return nullptr;
        const auto value = object_.find(key);
        if (value == object_.end()) {
            refuse(ErrorKind::corrupt, fmt::format("{} is missing", key));
        } else if (!((*value).*is_type)()) {
            refuse(ErrorKind::corrupt, fmt::format("{} must be {}", key, type));
        } else {
            return &*value;
        }
        return nullptr;
    }

    const Json& object_;
    std::string place_;
    std::optional<Error> error_;
};

std::vector<int64_t> parse_shape(Fields& fields) {
    std::vector<int64_t> shape;
    for (const Json& dimension : fields.array("shape")) {
        // Whatever is no positive number becomes a zero, which tensor_bytes refuses, as it does too many.
        const uint64_t value = dimension.is_number_unsigned() ? dimension.get<uint64_t>() : 0;
        shape.push_back(value <= INT64_MAX ? static_cast<int64_t>(value) : 0);
        if (shape.size() > 3) break;
    }
    return shape;
}

Result<TensorEntry> parse_tensor(const Json& json, const std::string& place) {
    Fields fields(json, place);
    TensorEntry tensor{};
    tensor.name = fields.text("name");
    fields.rename(fmt::format("{} ({})", place, printable(tensor.name)));
    tensor.format = fields.format("format");
    tensor.layout = fields.layout("layout");
    tensor.shape = parse_shape(fields);
    tensor.offset = fields.number("offset");
    tensor.bytes = fields.number("bytes");
    tensor.hash = fields.hash("xxh3");
    fields.expect(!tensor.name.empty(), "name is empty");
    fields.expect(tensor.offset % kAlignment == 0,
                  fmt::format("offset {} is not a multiple of {}", tensor.offset, kAlignment));
    const auto bytes = tensor_bytes(tensor.format, tensor.layout, tensor.shape);
    fields.expect(bytes.has_value(), bytes ? std::string() : bytes.error().message);
    fields.expect(bytes && *bytes == tensor.bytes,
                  fmt::format("bytes is {}, its shape needs {}", tensor.bytes, bytes.value_or(0)));
    const auto result = fields.result();
    if (!result) return pass(result);
    return tensor;
}

Result<void> parse_trunk(const Json& json, Manifest& manifest, const std::string& place) {
    Fields fields(json, place);
    fields.expect(fields.text("file") == kTrunkName, fmt::format("file must be {}", kTrunkName));
    manifest.trunk_bytes = fields.number("bytes");
    uint64_t end = 0;
    std::set<std::string_view> names;
    const Json& tensors = fields.array("tensors");
    manifest.tensors.reserve(tensors.size());  // `names` views the names in place
    for (const Json& item : tensors) {
        const std::string where = fmt::format("{}.tensors[{}]", place, manifest.tensors.size());
        auto tensor = parse_tensor(item, where);
        if (!tensor) return pass(tensor);
        fields.rename(fmt::format("{} ({})", where, printable(tensor->name)));
        fields.expect(
            tensor->offset >= end,
            fmt::format("offset {} lies before the end of the tensor before it, {}", tensor->offset, end));
        fields.expect(
            tensor->offset <= manifest.trunk_bytes && tensor->bytes <= manifest.trunk_bytes - tensor->offset,
            fmt::format("{} bytes at offset {} do not fit the trunk's {}", tensor->bytes, tensor->offset,
                        manifest.trunk_bytes));
        end = tensor->offset + tensor->bytes;
        manifest.tensors.push_back(std::move(*tensor));
        fields.expect(names.insert(manifest.tensors.back().name).second, "the name occurs twice");
        const auto so_far = fields.result();
        if (!so_far) return so_far;
    }
    return fields.result();
}

Result<BankEntry> parse_bank(const Json& json, const std::string& place) {
    Fields fields(json, place);
    BankEntry bank{};
    bank.layer = fields.number_up_to("layer", kMaxLayer);
    fields.rename(fmt::format("{} (layer {})", place, bank.layer));
    bank.file = fields.file_name("file");
    bank.shape.experts = fields.number_up_to("experts", INT64_MAX);
    bank.shape.input_size = fields.number_up_to("input_size", INT64_MAX);
    bank.shape.intermediate_size = fields.number_up_to("intermediate_size", INT64_MAX);
    bank.shape.format = fields.format("format");
    const uint64_t record_bytes = fields.number("record_bytes");
    bank.bytes = fields.number("bytes");
    bank.table_hash = fields.hash("table_xxh3");
    auto result = fields.result();
    if (result) result = check_bank_shape(bank.shape, place);
    if (!result) return pass(result);

    fields.expect(
        record_bytes == bank.shape.record_bytes(),
        fmt::format("record_bytes is {}, the sizes need {}", record_bytes, bank.shape.record_bytes()));
    const uint64_t tail = bank_tail_bytes(bank.shape.experts);
    fields.expect(bank.bytes >= record_bytes + tail && bank.bytes <= bank.shape.file_bytes() &&
                      (bank.bytes - tail) % bank.shape.record_bytes() == 0,
                  fmt::format("bytes is {}, the sizes need {}", bank.bytes, bank.shape.file_bytes()));
    result = fields.result();
    if (!result) return pass(result);
    return bank;
}

Result<CarriedFile> parse_file(const Json& json, const std::string& place) {
    Fields fields(json, place);
    CarriedFile file{};
    file.name = fields.file_name("name");
    file.bytes = static_cast<uint64_t>(fields.number_up_to("bytes", kMaxCarriedBytes));
    file.hash = fields.hash("xxh3");
    const auto result = fields.result();
    if (!result) return pass(result);
    return file;
}

/// Every file of the container has its own name, and lists are in order.
Result<void> check_lists(const Manifest& manifest, const std::string& place) {
    std::set<std::string_view> names{kManifestName, kTrunkName};
    int64_t layer = -1;
    for (const BankEntry& bank : manifest.banks) {
        if (bank.layer <= layer) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("banks: layer {} comes after layer {}", bank.layer, layer));
        }
        layer = bank.layer;
        if (!names.insert(bank.file).second) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("banks: file {} occurs twice", printable(bank.file)));
        }
    }
    std::string_view before;
    for (const CarriedFile& file : manifest.files) {
        if (file.name <= before || !names.insert(file.name).second) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("files: {} is out of order or occurs twice", printable(file.name)));
        }
        before = file.name;
    }
    return {};
}

bool is_fingerprint(std::string_view text) {
    return text.size() == kFingerprintDigits && from_hex(text.substr(0, 16)) && from_hex(text.substr(16));
}

/// Parses with a bound on nesting: what lies deeper than a manifest goes is dropped, not kept in memory.
Json parse_json(std::string_view text) {
    constexpr int kDeepest = 8;
    const auto keep = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
    return Json::parse(text.begin(), text.end(), keep, false);
}

Result<void> check_version(Fields& fields) {
    fields.expect(fields.text("format") == "waste",
                  "format is not \"waste\": this is not a container's manifest");
    const uint64_t version = fields.number("version");
    if (version > kFormatVersion) {
        fields.refuse(ErrorKind::unsupported, fmt::format("made by a newer waste: version {}, this one reads "
                                                          "version {}",
                                                          version, kFormatVersion));
    }
    fields.expect(version == kFormatVersion, fmt::format("version {} does not exist", version));
    return fields.result();
}

/// Appends what `parse` makes of each item of an array.
template <typename Entry, typename Parse>
Result<void> parse_list(const Json& list, std::vector<Entry>& out, const std::string& place, Parse parse) {
    for (const Json& item : list) {
        auto entry = parse(item, fmt::format("{}[{}]", place, out.size()));
        if (!entry) return pass(entry);
        out.push_back(std::move(*entry));
    }
    return {};
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text, const std::string& place) {
    if (text.size() > kMaxManifestBytes) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("{} bytes are more than a manifest has", text.size()));
    }
    const Json json = parse_json(text);
    if (json.is_discarded()) return fail(ErrorKind::corrupt, place, "is not valid JSON in UTF-8");
    Fields fields(json, place);
    auto result = check_version(fields);
    if (!result) return pass(result);

    Manifest manifest{};
    manifest.fingerprint = fields.text("fingerprint");
    fields.expect(is_fingerprint(manifest.fingerprint),
                  "fingerprint must be 32 lower-case hexadecimal digits");
    manifest.config = fields.text("config");
    Fields recipe(fields.object("recipe"), place + ": recipe");
    manifest.trunk_recipe = recipe.text("trunk");
    manifest.expert_recipe = recipe.text("experts");
    const Json& trunk = fields.object("trunk");
    const Json& banks = fields.array("banks");
    const Json& files = fields.array("files");
    result = fields.result();
    if (result) result = recipe.result();
    if (result) result = parse_trunk(trunk, manifest, place + ": trunk");
    if (result) result = parse_list(banks, manifest.banks, place + ": banks", parse_bank);
    if (result) result = parse_list(files, manifest.files, place + ": files", parse_file);
    if (result) result = check_lists(manifest, place);
    if (!result) return pass(result);
    return manifest;
}

}  // namespace waste::container
