// Prints what our tokenizer makes of texts on standard input, for pretokenizer_diff.py to hold against
// another engine.
//
//   pretokenize_lines pieces
//   pretokenize_lines ids RANK_FILE TOKENIZER_CONFIG VOCAB_SIZE
//
// In: records of a length (4 bytes, little endian) and so many bytes of UTF-8. Out: for each record a line
// with the lengths of the pieces in bytes, or the ids.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer.h"

namespace {

using namespace waste;
using namespace waste::engine;

std::optional<std::string> read_record() {
    unsigned char header[4];
    if (std::fread(header, 1, sizeof(header), stdin) != sizeof(header)) return std::nullopt;
    const size_t length =
        header[0] | size_t{header[1]} << 8 | size_t{header[2]} << 16 | size_t{header[3]} << 24;
    std::string text(length, '\0');
    if (std::fread(text.data(), 1, length, stdin) != length) return std::nullopt;
    return text;
}

Result<std::vector<size_t>> piece_lengths(const Pretokenizer& pretokenizer, std::string_view text) {
    std::vector<size_t> lengths;
    std::vector<std::string_view> pieces;
    for (const std::string_view slice : cut_slices(text)) {
        const auto done = pretokenizer.split(slice, pieces);
        if (!done) return pass(done);
        for (const std::string_view piece : pieces) lengths.push_back(piece.size());
    }
    return lengths;
}

/// Prints what `numbers_of` makes of each record.
template <typename F>
int print_all(F numbers_of) {
    while (const auto text = read_record()) {
        const auto numbers = numbers_of(*text);
        if (!numbers) {
            fmt::print(stderr, "{}\n", numbers.error().text());
            return 1;
        }
        fmt::print("{}\n", fmt::join(*numbers, " "));
    }
    return 0;
}

std::string read_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string_view> arguments(argv + 1, argv + argc);
    if (arguments.size() == 1 && arguments[0] == "pieces") {
        const auto pretokenizer = Pretokenizer::create();
        if (pretokenizer)
            return print_all([&](std::string_view text) { return piece_lengths(*pretokenizer, text); });
        fmt::print(stderr, "{}\n", pretokenizer.error().text());
        return 1;
    }
    if (arguments.size() == 4 && arguments[0] == "ids") {
        int64_t vocab_size = 0;
        std::from_chars(arguments[3].data(), arguments[3].data() + arguments[3].size(), vocab_size);
        const auto tokenizer = Tokenizer::create(read_file(argv[2]), read_file(argv[3]), vocab_size, "input");
        if (tokenizer) return print_all([&](std::string_view text) { return tokenizer->encode(text); });
        fmt::print(stderr, "{}\n", tokenizer.error().text());
        return 1;
    }
    fmt::print(stderr, "usage: pretokenize_lines pieces | ids RANK_FILE TOKENIZER_CONFIG VOCAB_SIZE\n");
    return 2;
}
