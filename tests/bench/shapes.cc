#include "tests/bench/shapes.h"

#include <fmt/format.h>

namespace waste::bench {

namespace {

std::vector<Shape> all_shapes(kernels::Format format) {
    switch (format) {
        case kernels::Format::q8:
        case kernels::Format::q4:
            return {{"K3", 12288, 7168}, {"K3", 7168, 12288}, {"KL", 4096, 2304}, {"demo", 384, 256}};
        case kernels::Format::mxfp4:
            return {{"K3", 3072, 3584}, {"KL", 1024, 2304}, {"demo", 128, 128}};
        case kernels::Format::bf16:
            return {{"K3", 12288, 7168}, {"K3", 896, 7168}, {"KL", 256, 2304}, {"demo", 64, 256}};
        case kernels::Format::f32:
            return {{"K3", 896, 7168}, {"KL", 256, 2304}};
    }
    return {};
}

std::vector<Shape> one_shape(kernels::Format format) {
    std::vector<Shape> shapes = all_shapes(format);
    std::erase_if(shapes, [](const Shape& shape) { return shape.model != "KL"; });
    return shapes;
}

}  // namespace

std::vector<Shape> shapes_for(const kernels::MatmulInt8Variant& variant) {
    return variant.tier == kernels::Tier::scalar ? one_shape(variant.format) : all_shapes(variant.format);
}

std::vector<Shape> shapes_for(const kernels::MatmulF32Variant& variant) {
    const bool side_path = kernels::format_info(variant.format).int8_kernel;
    return variant.tier == kernels::Tier::scalar || side_path ? one_shape(variant.format)
                                                              : all_shapes(variant.format);
}

std::string row_name(std::string_view family, kernels::Tier tier, kernels::Format format, const Shape& shape,
                     std::string_view suffix) {
    return fmt::format("{}/{}/{}/{}/{}x{}/{}", family, kernels::tier_name(tier),
                       kernels::format_info(format).name, shape.model, shape.rows, shape.cols, suffix);
}

}  // namespace waste::bench
