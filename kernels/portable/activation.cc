#include "kernels/activation.h"

#include "kernels/portable/math.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

void sigmoid_all(const float* x, int64_t n, float* y) {
    for_strips(0, n, [=](auto strip) { strip.store(y, sigmoid(strip.load(x)).value()); });
}

void sigmoid_gate(const float* x, const float* gate, int64_t n, float* y) {
    for_strips(0, n, [=](auto strip) { strip.store(y, strip.load(x) * sigmoid(strip.load(gate)).value()); });
}

void silu_glu(const float* gate, const float* up, int64_t n, float* y) {
    for_strips(0, n, [=](auto strip) {
        const Floats g = strip.load(gate);
        strip.store(y, g * sigmoid(g).value() * strip.load(up));
    });
}

/// One division for the three quotients: divisions are what it would be bound by.
template <bool kUpIsBounded>
void situ_glu_as(const float* gate, const float* up, float beta, float linear_beta, int64_t n, float* y) {
    const float inverse_beta = 1.0f / beta;
    const float inverse_linear_beta = 1.0f / linear_beta;
    for_strips(0, n, [=](auto strip) {
        const Floats g = strip.load(gate);
        const Floats u = strip.load(up);
        const Fraction tanh_gate = tanh(g * inverse_beta);
        const Fraction opening = sigmoid(g);
        const Fraction tanh_up = kUpIsBounded ? tanh(u * inverse_linear_beta) : Fraction{u, all(1.0f)};
        const Floats bounded_up = kUpIsBounded ? tanh_up.numerator * linear_beta : u;
        const Fraction product{tanh_gate.numerator * beta * opening.numerator * bounded_up,
                               tanh_gate.denominator * opening.denominator * tanh_up.denominator};
        strip.store(y, product.value());
    });
}

void situ_glu(const float* gate, const float* up, float beta, float linear_beta, int64_t n, float* y) {
    const auto run = linear_beta == 0.0f ? situ_glu_as<false> : situ_glu_as<true>;
    run(gate, up, beta, linear_beta, n, y);
}

void add(const float* x, int64_t n, float* y) {
    for_strips(0, n, [=](auto strip) { strip.store(y, strip.load(y) + strip.load(x)); });
}

void add_scaled(const float* x, float weight, int64_t n, float* y) {
    for_strips(0, n, [=](auto strip) { strip.store(y, fma(all(weight), strip.load(x), strip.load(y))); });
}

void decay_bounded(const float* raw, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                   float* decay) {
    const float a = exp1(a_log);
    for_strips(0, n, [=](auto strip) {
        const Floats z = strip.load(raw) + strip.load(dt_bias);
        strip.store(decay, exp_nonpositive(lower_bound * sigmoid(a * z).value()));
    });
}

void decay_softplus(const float* raw, const float* dt_bias, float a_log, int64_t n, float* decay) {
    const float a = exp1(a_log);
    for_strips(0, n, [=](auto strip) {
        const Floats z = strip.load(raw) + strip.load(dt_bias);
        strip.store(decay, exp_nonpositive(-a * softplus(z)));
    });
}

}  // namespace

const ActivationKernels kActivation{sigmoid_all, sigmoid_gate, silu_glu, situ_glu, add, add_scaled};
const KdaGateKernels kKdaGate{decay_bounded, decay_softplus};

}  // namespace waste::kernels::WASTE_TIER
