#include "engine/text/pretokenizer.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>
#include <string>
#include <utility>

#include "engine/text/utf8.h"

namespace waste::engine {
namespace {

// The release's pattern, written for PCRE2 10.42. Three things differ in spelling so that they are the same
// in meaning:
//   - \p{Han} would be Script_Extensions here, which takes ideographic punctuation in: \p{sc:Han}.
//   - Classes have no intersection. "Lu, Lt, Lm, Lo or M, and not Han" is written as its complement, "none of
//     the other categories and not Han": one class, so a run of it costs no stack for each character.
//   - \s would include U+180E: white space is spelled out.
std::string pattern() {
    const std::string space =
        R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
    const std::string no_word = R"(\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han})";
    const std::string upper_like = R"([^\p{Ll})" + no_word + "]";
    const std::string lower_like = R"([^\p{Lu}\p{Lt})" + no_word + "]";
    const std::string before = R"([^\r\n\p{L}\p{N}]?)";
    const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    return R"(\p{sc:Han}+)"  //
           "|" +
           before + upper_like + "*" + lower_like + "+" + contraction +        //
           "|" + before + upper_like + "+" + lower_like + "*" + contraction +  //
           R"(|\p{N}{1,3})"                                                    //
           R"(| ?[^)" +
           space + R"(\p{L}\p{N}]+[\r\n]*)" +         //
           "|[" + space + R"(]*[\r\n]+)" +            //
           "|[" + space + "]+(?![^" + space + "])" +  //
           "|[" + space + "]+";
}

// Backtracking is at most a few steps for each character of a piece, and a piece has at most about 50,000, so
// ordinary work stays far below these; they turn a surprise into an error instead of a hang.
constexpr uint32_t kMatchLimit = 2'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

std::string error_text(int code) {
    unsigned char text[128] = {};
    pcre2_get_error_message(code, text, sizeof(text));
    return reinterpret_cast<const char*>(text);
}

/// Python's str.isspace for one character.
bool is_space_for_cuts(char32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

}  // namespace

struct Pretokenizer::Program {
    pcre2_code* code = nullptr;
    pcre2_match_context* limits = nullptr;

    Program() = default;
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        pcre2_match_context_free(limits);
        pcre2_code_free(code);
    }
};

std::vector<std::string_view> cut_slices(std::string_view text) {
    std::vector<std::string_view> slices;
    size_t slice_begin = 0;
    size_t chunk_characters = 0;
    size_t run_characters = 0;
    bool run_is_space = false;
    for (size_t at = 0; at < text.size();) {
        const Utf8Step step = next_utf8(text.substr(at));
        const bool is_space = is_space_for_cuts(step.character);
        const bool chunk_full = chunk_characters == kChunkCharacters;
        const bool same_run = is_space == run_is_space && !chunk_full;
        const bool run_full = same_run && run_characters == kRunCharacters;
        if (chunk_full || run_full) {
            slices.push_back(text.substr(slice_begin, at - slice_begin));
            slice_begin = at;
        }
        if (chunk_full) chunk_characters = 0;
        run_characters = same_run && !run_full ? run_characters + 1 : 1;
        run_is_space = is_space;
        ++chunk_characters;
        at += step.bytes;
    }
    if (slice_begin < text.size()) slices.push_back(text.substr(slice_begin));
    return slices;
}

Result<Pretokenizer> Pretokenizer::create() {
    auto program = std::make_shared<Program>();
    const std::string source = pattern();
    int error = 0;
    size_t error_offset = 0;
    program->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &error_offset, nullptr);
    program->limits = pcre2_match_context_create(nullptr);
    if (program->code == nullptr || program->limits == nullptr) {
        return fail(
            ErrorKind::unsupported, "pre-tokenizer",
            fmt::format("this PCRE2 library cannot compile the pattern (10.40 or newer is needed): {}",
                        error_text(error)));
    }
    pcre2_set_match_limit(program->limits, kMatchLimit);
    pcre2_set_heap_limit(program->limits, kHeapLimitKib);
    // Where there is no just-in-time compiler this fails, and matching is interpreted: slower, the same
    // pieces.
    pcre2_jit_compile(program->code, PCRE2_JIT_COMPLETE);
    return Pretokenizer(std::move(program));
}

Result<void> Pretokenizer::split(std::string_view slice, std::vector<std::string_view>& pieces) const {
    pieces.clear();
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    if (!match) return fail(ErrorKind::capacity, "pre-tokenizer", "out of memory");
    for (size_t at = 0; at < slice.size();) {
        const int found = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(slice.data()),
                                      slice.size(), at, PCRE2_NO_UTF_CHECK, match.get(), program_->limits);
        const size_t end = found > 0 ? pcre2_get_ovector_pointer(match.get())[1] : at;
        if (end <= at) {
            return fail(ErrorKind::invalid, "pre-tokenizer",
                        fmt::format("cannot split the text at byte {}: {}", at, error_text(found)));
        }
        pieces.push_back(slice.substr(at, end - at));
        at = end;
    }
    return {};
}

}  // namespace waste::engine
