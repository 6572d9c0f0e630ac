#include "engine/session_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/float16.h"

namespace waste::engine {

container::SectionName section_name(SectionKind kind, int64_t index, int64_t first) {
    return {static_cast<uint32_t>(kind), static_cast<uint32_t>(index), static_cast<uint64_t>(first)};
}

std::string section_text(const container::SectionName& name) {
    const auto copy = [&](std::string_view what) {
        return name.first == static_cast<uint64_t>(kPresentState)
                   ? std::string(what)
                   : fmt::format("{} of checkpoint {}", what, name.first - 1);
    };
    switch (static_cast<SectionKind>(name.kind)) {
        case SectionKind::about:
            return "the description";
        case SectionKind::tokens:
            return "the tokens";
        case SectionKind::chunked:
            return "the forms of the chunks";
        case SectionKind::recurrent:
            return copy(fmt::format("KDA state {}", name.index));
        case SectionKind::logits:
            return copy("the logits");
        case SectionKind::latents:
            return fmt::format("latents of layer {} from position {} on", name.index, name.first);
    }
    return fmt::format("a section of unknown kind {}", name.kind);
}

Result<void> add_floats(container::SectionWriter& writer, const container::SectionName& name,
                        StateFormat format, std::span<const float> values, std::span<const float> more) {
    const auto element = static_cast<uint32_t>(format);
    constexpr auto kRaw = container::SectionCodec::raw;
    if (format == StateFormat::f32 && more.empty()) {
        return writer.add(name, element, kRaw, std::as_bytes(values));
    }
    const size_t width = format == StateFormat::f32 ? sizeof(float) : sizeof(uint16_t);
    std::vector<std::byte> bytes((values.size() + more.size()) * width);
    std::byte* to = bytes.data();
    for (const auto& part : {values, more}) {
        if (format == StateFormat::f32) {
            std::memcpy(to, part.data(), part.size_bytes());
        } else {
            std::transform(part.begin(), part.end(), reinterpret_cast<uint16_t*>(to), kernels::f32_to_bf16);
        }
        to += part.size() * width;
    }
    return writer.add(name, element, kRaw, bytes);
}

Result<void> read_floats(const container::SectionFile& file, const container::SectionName& name,
                         std::span<float> values, std::span<float> more) {
    const container::SectionEntry* entry = file.find(name);
    if (entry == nullptr) {
        return fail(ErrorKind::corrupt, file.path(), fmt::format("{}: missing", section_text(name)));
    }
    const auto format = static_cast<StateFormat>(entry->element);
    if (format == StateFormat::f32 && more.empty()) {
        return file.read(*entry, section_text(name), std::as_writable_bytes(values));
    }
    if (format != StateFormat::f32 && format != StateFormat::bf16) {
        return fail(ErrorKind::corrupt, file.path(),
                    fmt::format("{}: written in an unknown format", section_text(name)));
    }
    const size_t width = format == StateFormat::f32 ? sizeof(float) : sizeof(uint16_t);
    std::vector<std::byte> bytes((values.size() + more.size()) * width);
    if (const auto read = file.read(*entry, section_text(name), bytes); !read) return read;
    const std::byte* from = bytes.data();
    for (const auto& part : {values, more}) {
        if (format == StateFormat::f32) {
            std::memcpy(part.data(), from, part.size_bytes());
        } else {
            std::transform(reinterpret_cast<const uint16_t*>(from),
                           reinterpret_cast<const uint16_t*>(from) + part.size(), part.begin(),
                           kernels::bf16_to_f32);
        }
        from += part.size() * width;
    }
    return {};
}

Result<void> read_recurrent(const container::SectionFile& file, int64_t copy, int64_t layers,
                            std::span<float> recurrent) {
    if (layers == 0) return {};
    const size_t floats = recurrent.size() / static_cast<size_t>(layers);
    for (int64_t layer = 0; layer < layers; layer++) {
        const auto read = read_floats(file, section_name(SectionKind::recurrent, layer, copy),
                                      recurrent.subspan(static_cast<size_t>(layer) * floats, floats));
        if (!read) return read;
    }
    return {};
}

}  // namespace waste::engine
