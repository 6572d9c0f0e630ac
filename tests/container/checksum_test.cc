#include "container/checksum.h"

#include <gtest/gtest.h>

namespace waste::container {
namespace {

// Known answers published with xxHash: XXH3 of nothing, seed 0.
TEST(Checksum, KnownAnswers) {
    EXPECT_EQ(xxh3_64(std::string_view()), 0x2d06800538d394c2u);
    EXPECT_EQ(Hasher().digest_64(), 0x2d06800538d394c2u);
    EXPECT_EQ(Hasher().digest_128_hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Checksum, PiecesEqualTheWhole) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += static_cast<char>('a' + i % 26);
    const auto whole = xxh3_64(text);
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{240}, size_t{1024}, text.size()}) {
        Hasher hasher;
        hasher.update(std::string_view(text).substr(0, cut));
        hasher.update(std::string_view(text).substr(cut));
        EXPECT_EQ(hasher.digest_64(), whole) << cut;
    }
}

TEST(Checksum, NumbersAreHashedLittleEndian) {
    Hasher number;
    number.update_u64(0x0807060504030201);
    Hasher bytes;
    bytes.update(std::string_view("\x01\x02\x03\x04\x05\x06\x07\x08"));
    EXPECT_EQ(number.digest_64(), bytes.digest_64());
}

TEST(Checksum, HexRoundTrip) {
    EXPECT_EQ(to_hex(0x0123456789abcdef), "0123456789abcdef");
    EXPECT_EQ(from_hex("0123456789abcdef"), 0x0123456789abcdefu);
    for (const char* bad : {"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF",
                            "0x23456789abcdef", "0123456789abcde "}) {
        EXPECT_EQ(from_hex(bad), std::nullopt) << bad;
    }
}

}  // namespace
}  // namespace waste::container
