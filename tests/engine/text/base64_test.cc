#include "engine/text/base64.h"

#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

// RFC 4648, section 10.
TEST(Base64, DecodesTheTestVectorsOfTheStandard) {
    EXPECT_EQ(decode_base64(""), "");
    EXPECT_EQ(decode_base64("Zg=="), "f");
    EXPECT_EQ(decode_base64("Zm8="), "fo");
    EXPECT_EQ(decode_base64("Zm9v"), "foo");
    EXPECT_EQ(decode_base64("Zm9vYg=="), "foob");
    EXPECT_EQ(decode_base64("Zm9vYmE="), "fooba");
    EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
}

TEST(Base64, DecodesEveryByteAtEveryPosition) {
    for (size_t length = 1; length <= 4; ++length) {
        for (int byte = 0; byte < 256; ++byte) {
            const std::string bytes(length, static_cast<char>(byte));
            EXPECT_EQ(decode_base64(test::encode_base64(bytes)), bytes);
        }
    }
}

TEST(Base64, RefusesWhatAnEncoderDoesNotWrite) {
    for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "====", "=g==", "Z===", "Zm9vY", "Zm 9", "Zm9\n",
                             "Zm9-", "Zm9_", "Zg==Zg==", "Zh==", "Zm9=", "Zm\xC3\xA9"}) {
        EXPECT_FALSE(decode_base64(text).has_value()) << text;
    }
}

}  // namespace
}  // namespace waste::engine
