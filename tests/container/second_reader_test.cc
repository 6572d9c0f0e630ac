// The reader written from docs/container-format.md decodes a container to the same values as ours.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "container/reader.h"
#include "kernels/format.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_container.h"

namespace waste::container {
namespace {

void append_matrix(kernels::Format format, const kernels::Panels& matrix, std::vector<float>& out) {
    const int64_t panel = kernels::panel_bytes(format, matrix.cols);
    std::vector<float> rows(static_cast<size_t>(kernels::kPanelRows * matrix.cols));
    for (int64_t row = 0; row < matrix.rows; row += kernels::kPanelRows) {
        kernels::format_info(format).decode(matrix.data + row / kernels::kPanelRows * panel, matrix.cols,
                                            rows.data());
        const int64_t used = std::min(kernels::kPanelRows, matrix.rows - row) * matrix.cols;
        out.insert(out.end(), rows.begin(), rows.begin() + used);
    }
}

std::vector<float> all_values(const Container& container) {
    std::vector<float> out;
    for (const TensorEntry& entry : container.manifest().tensors) {
        const TensorView view = *container.tensor(entry.name);
        if (entry.layout == Layout::panels) {
            const int64_t matrices = entry.shape.size() == 3 ? entry.shape[0] : 1;
            for (int64_t i = 0; i < matrices; ++i) append_matrix(entry.format, view.panels(i), out);
            continue;
        }
        std::vector<float> row(static_cast<size_t>(entry.shape.back()));
        const int64_t rows = entry.shape.size() == 1 ? 1 : entry.shape[0];
        for (int64_t r = 0; r < rows; ++r) {
            EXPECT_TRUE(container.read_row(view, r, row));
            out.insert(out.end(), row.begin(), row.end());
        }
    }
    for (size_t bank = 0; bank < container.manifest().banks.size(); ++bank) {
        const BankShape& shape = container.manifest().banks[bank].shape;
        for (int64_t i = 0; i < shape.experts; ++i) {
            const ExpertView expert = *container.expert(bank, i);
            for (const auto& matrix : {expert.gate, expert.up, expert.down}) {
                append_matrix(shape.format, matrix, out);
            }
        }
    }
    return out;
}

TEST(SecondReader, DecodesTheSameValues) {
    if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
    const test::TempDir dir;
    const std::string path = dir.file("tiny.waste");
    ASSERT_TRUE(test::tiny_container().write(path));
    const std::string command = "python3 " WASTE_TEST_DATA "/../container/read_container.py " + path + " " +
                                dir.file("values") + " > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const auto theirs = read_text_file(dir.file("values"), 1 << 24);
    ASSERT_TRUE(theirs);
    const std::vector<float> ours = all_values(*Container::open(path));
    ASSERT_EQ(theirs->size(), ours.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(theirs->data(), ours.data(), theirs->size()), 0);
}

}  // namespace
}  // namespace waste::container
