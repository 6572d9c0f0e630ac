#include "tests/kernels/kda_oracle.h"

#include <cmath>

namespace waste::test {
namespace {

/// Second-order terms, and the f64 arithmetic of the bound itself.
constexpr double kSlack = 1.05;
/// What is lost where decays underflow.
constexpr double kUnderflow = 1e-36;

size_t at(int64_t index) {
    return static_cast<size_t>(index);
}

void append_unit_rows(int64_t dim, int64_t count, int64_t stride, float length, Random& random,
                      std::vector<float>& rows) {
    for (int64_t t = 0; t < count; ++t) {
        const std::vector<float> row = random.normals(dim, 1.0f);
        double squares = 1e-6;
        for (const float x : row) squares += double{x} * double{x};
        for (const float x : row) rows.push_back(static_cast<float>(x * length / std::sqrt(squares)));
        rows.resize(rows.size() + at(stride - dim), 3e38f);
    }
}

}  // namespace

kernels::KdaCall KdaTokens::call() const {
    kernels::KdaCall call{};
    call.key_dim = key_dim;
    call.value_dim = value_dim;
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    call.gate = decay.data();
    call.stride = stride;
    call.beta = beta.data();
    call.beta_stride = 1;
    call.gate_form = kernels::KdaGate::decay;
    call.slot_stride = key_dim * value_dim;
    call.out_stride = stride;
    return call;
}

KdaTokens random_kda_tokens(int64_t key_dim, int64_t value_dim, int64_t count, Random& random,
                            const std::function<float(Random&)>& decay) {
    KdaTokens tokens{key_dim, value_dim, count, std::max(key_dim, value_dim) + 3, {}, {}, {}, {}, {}};
    append_unit_rows(key_dim, count, tokens.stride, 1.0f / std::sqrt(static_cast<float>(key_dim)), random,
                     tokens.q);
    append_unit_rows(key_dim, count, tokens.stride, 1.0f, random, tokens.k);
    tokens.v = random.normals(count * tokens.stride, 1.0f);
    for (int64_t i = 0; i < count * tokens.stride; ++i) tokens.decay.push_back(decay(random));
    for (int64_t i = 0; i < count; ++i) tokens.beta.push_back(random.uniform(0.05f, 0.95f));
    return tokens;
}

/// What all columns of a block share. Rows are its tokens.
struct KdaOracle::Block {
    int64_t count;
    std::vector<double> k_in, q_in, k_out;  ///< [count][K]
    std::vector<double> decay;              ///< [K]
    std::vector<double> kk, qk;             ///< [count][count], query by key
    std::vector<double> kk_size, qk_size;   ///< likewise of absolute values
    std::vector<double> q_norm;             ///< [count]
};

KdaOracle::KdaOracle(const KdaTokens& tokens, std::span<const float> state)
    : tokens_(tokens), state_(state.begin(), state.end()), state_error_(at(tokens.value_dim), 0.0) {}

void KdaOracle::run(int64_t count, int64_t position) {
    using kernels::kKdaBlock;
    using kernels::kKdaChunk;
    for (const int64_t end = position + count; position < end;) {
        if (position % kKdaChunk != 0 || end - position < kKdaChunk) {
            run_block(1);
            ++position;
            continue;
        }
        for (int64_t block = 0; block < kKdaChunk; block += kKdaBlock) run_block(kKdaBlock);
        position += kKdaChunk;
    }
}

void KdaOracle::run_block(int64_t count) {
    const Block block = describe_block(count);
    out_.resize(at((done_ + count) * tokens_.value_dim));
    out_error_.resize(out_.size());
    for (int64_t col = 0; col < tokens_.value_dim; ++col) run_column(block, col);
    done_ += count;
}

KdaOracle::Block KdaOracle::describe_block(int64_t count) const {
    const int64_t key_dim = tokens_.key_dim;
    const std::vector<double> rows(at(count * key_dim));
    const std::vector<double> pairs(at(count * count));
    Block block{count, rows,  rows,  rows,  std::vector<double>(at(key_dim), 1.0),
                pairs, pairs, pairs, pairs, std::vector<double>(at(count))};
    const auto row = [&](const std::vector<float>& all, int64_t i, int64_t c) {
        return double{all[at((done_ + i) * tokens_.stride + c)]};
    };
    for (int64_t c = 0; c < key_dim; ++c) {
        for (int64_t i = 0; i < count; ++i) {
            block.decay[at(c)] *= row(tokens_.decay, i, c);
            block.k_in[at(i * key_dim + c)] = row(tokens_.k, i, c) * block.decay[at(c)];
            block.q_in[at(i * key_dim + c)] = row(tokens_.q, i, c) * block.decay[at(c)];
            block.q_norm[at(i)] += row(tokens_.q, i, c) * row(tokens_.q, i, c);
        }
        for (int64_t j = 0; j < count; ++j) {
            double key = row(tokens_.k, j, c);
            for (int64_t i = j; i < count; ++i) {
                if (i > j) key *= row(tokens_.decay, i, c);
                const double with_k = row(tokens_.k, i, c) * key;
                const double with_q = row(tokens_.q, i, c) * key;
                block.kk[at(i * count + j)] += with_k;
                block.qk[at(i * count + j)] += with_q;
                block.kk_size[at(i * count + j)] += std::abs(with_k);
                block.qk_size[at(i * count + j)] += std::abs(with_q);
            }
            block.k_out[at(j * key_dim + c)] = key;
        }
    }
    for (double& norm : block.q_norm) norm = std::sqrt(norm);
    return block;
}

void KdaOracle::run_column(const Block& block, int64_t col) {
    const int64_t key_dim = tokens_.key_dim;
    const int64_t n = block.count;
    const auto length = static_cast<double>(n);
    // Roundings of a product of decays with k, of a chain over channels and pairs, of a dot product of keys:
    // one chain in the step, sixteen folded in the chunk.
    const double product = length * kRounding;
    const double chain = static_cast<double>(key_dim + n) * kRounding;
    const double dot =
        (n == 1 ? static_cast<double>(key_dim) : static_cast<double>(key_dim) / 16.0 + 5.0) * kRounding +
        product;
    std::vector<double> u(at(n)), u_error(at(n));
    // The sum of one token against the state and the block's deltas; returns it with its error.
    const auto sum = [&](const std::vector<double>& in, const std::vector<double>& pairs,
                         const std::vector<double>& sizes, int64_t i, int64_t keys) {
        double value = 0, size = 0, error = 0;
        for (int64_t c = 0; c < key_dim; ++c) {
            const double term = in[at(i * key_dim + c)] * state_[at(c * tokens_.value_dim + col)];
            value += term;
            size += std::abs(term);
        }
        error = product * size;
        for (int64_t j = 0; j < keys; ++j) {
            value += pairs[at(i * n + j)] * u[at(j)];
            const double pair_size = sizes[at(i * n + j)];
            size += pair_size * std::abs(u[at(j)]);
            error += pair_size * (dot * std::abs(u[at(j)]) + u_error[at(j)]);
        }
        struct Result {
            double value, size, error;
        };
        return Result{value, size, error + chain * size};
    };
    for (int64_t i = 0; i < n; ++i) {
        const double beta = tokens_.beta[at(done_ + i)];
        const double v = tokens_.v[at((done_ + i) * tokens_.stride + col)];
        const auto known = sum(block.k_in, block.kk, block.kk_size, i, i);
        u[at(i)] = beta * (v - known.value);
        u_error[at(i)] = beta * (known.error + 2.0 * kRounding * (std::abs(v) + known.size));
    }
    for (int64_t i = 0; i < n; ++i) {
        const auto result = sum(block.q_in, block.qk, block.qk_size, i, i + 1);
        const size_t where = at((done_ + i) * tokens_.value_dim + col);
        out_[where] = result.value;
        out_error_[where] = result.error + block.q_norm[at(i)] * state_error_[at(col)];
    }
    double squares = 0;
    for (int64_t c = 0; c < key_dim; ++c) {
        double& s = state_[at(c * tokens_.value_dim + col)];
        s *= block.decay[at(c)];
        double size = std::abs(s);
        double error = product * size;
        for (int64_t j = 0; j < n; ++j) {
            const double key = block.k_out[at(j * key_dim + c)];
            s += key * u[at(j)];
            size += std::abs(key * u[at(j)]);
            error += std::abs(key) * (u_error[at(j)] + product * std::abs(u[at(j)]));
        }
        error += product * size;
        squares += error * error;
    }
    state_error_[at(col)] += std::sqrt(squares);
}

std::string KdaOracle::difference(std::span<const float> out, std::span<const float> state) const {
    const int64_t value_dim = tokens_.value_dim;
    for (int64_t col = 0; col < value_dim; ++col) {
        for (int64_t t = 0; t < done_; ++t) {
            const size_t where = at(t * value_dim + col);
            const double off = std::abs(out[at(t * tokens_.stride + col)] - out_[where]);
            if (!(off <= kSlack * out_error_[where] + kUnderflow)) {
                return "out of token " + std::to_string(t) + " column " + std::to_string(col) + ": off by " +
                       std::to_string(off / out_error_[where]) + " bounds";
            }
        }
        double squares = 0;
        for (int64_t c = 0; c < tokens_.key_dim; ++c) {
            const double off = state[at(c * value_dim + col)] - state_[at(c * value_dim + col)];
            squares += off * off;
        }
        if (!(std::sqrt(squares) <= kSlack * state_error_[at(col)] + kUnderflow)) {
            return "state column " + std::to_string(col) + ": off by " +
                   std::to_string(std::sqrt(squares) / state_error_[at(col)]) + " bounds";
        }
    }
    return "";
}

}  // namespace waste::test
