// How session files could be written, on the states of a real session; and how fast one of K3's size is written and
// read.
#include <fmt/format.h>
#include <zstd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "container/checksum.h"
#include "engine/session.h"
#include "kernels/float16.h"

namespace waste::bench {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr int kRuns = 5;

double seconds_of(const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int run = 0; run < kRuns; run++) {
        const auto start = Clock::now();
        work();
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[kRuns / 2];
}

/// All first bytes of the elements, then all second ones, …: what is alike comes together.
Bytes shuffled(const Bytes& bytes, size_t width) {
    Bytes out(bytes.size());
    const size_t count = bytes.size() / width;
    for (size_t i = 0; i < count; i++) {
        for (size_t b = 0; b < width; b++) out[b * count + i] = bytes[i * width + b];
    }
    return out;
}

Bytes as_bf16(const Bytes& bytes) {
    Bytes out(bytes.size() / 2);
    const auto* from = reinterpret_cast<const float*>(bytes.data());
    auto* to = reinterpret_cast<uint16_t*>(out.data());
    std::transform(from, from + bytes.size() / sizeof(float), to, kernels::f32_to_bf16);
    return out;
}

/// The f32 sections of a kind, one behind the other.
Bytes floats_of(const engine::SavedSession& saved, engine::SectionKind kind) {
    Bytes out;
    for (const container::SectionEntry& entry : saved.file().entries()) {
        if (entry.name.kind != static_cast<uint32_t>(kind)) continue;
        Bytes part(entry.raw_bytes);
        if (!saved.file().read(entry, "a section", part)) continue;
        out.insert(out.end(), part.begin(), part.end());
    }
    return out;
}

void print_codings(const char* what, const Bytes& raw) {
    fmt::print(
        "{}: {:.1f} MB of f32\n  coding                 size   in MB/s  out MB/s  (of f32, one core)\n", what,
        static_cast<double>(raw.size()) / 1e6);
    const auto row = [&](const char* name, const Bytes& bytes, int level) {
        Bytes packed(ZSTD_compressBound(bytes.size())), back(bytes.size());
        size_t size = 0;
        const double in = seconds_of(
            [&] { size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), level); });
        const double out =
            seconds_of([&] { ZSTD_decompress(back.data(), back.size(), packed.data(), size); });
        const double megabytes = static_cast<double>(raw.size()) / 1e6;
        fmt::print("  {:<22} {:.3f}  {:8.0f}  {:8.0f}\n", name,
                   static_cast<double>(size) / static_cast<double>(raw.size()), megabytes / in,
                   megabytes / out);
    };
    row("zstd 1", raw, 1);
    row("zstd 3", raw, 3);
    row("zstd 9", raw, 9);
    const Bytes planes = shuffled(raw, sizeof(float));
    row("shuffled, zstd 1", planes, 1);
    row("shuffled, zstd 3", planes, 3);
    const Bytes half = as_bf16(raw);
    row("bf16, zstd 1", half, 1);
    row("bf16 shuffled, zstd 1", shuffled(half, sizeof(uint16_t)), 1);
}

/// Recurrent part and 4,096 positions of K3, as Session::save() writes them.
int print_k3(const std::string& path) {
    constexpr int kKdaLayers = 69, kMlaLayers = 24;
    constexpr size_t kStateFloats = 96 * 128 * 128 + 3 * 3 * 12288, kLatentFloats = 4096 * (512 + 64);
    std::vector<float> state(kStateFloats), latents(kLatentFloats);
    std::mt19937 random(1);
    for (float& value : state) value = static_cast<float>(random()) * 1e-9f;
    for (float& value : latents) value = static_cast<float>(random()) * 1e-9f;
    const double bytes = 4.0 * (kKdaLayers * kStateFloats + kMlaLayers * kLatentFloats);
    const auto write = [&](engine::StateFormat format, bool commit) -> Result<void> {
        auto writer = container::SectionWriter::create(path, std::string(32, '0'));
        if (!writer) return pass(writer);
        for (int i = 0; i < kKdaLayers; i++) {
            const auto ok =
                add_floats(*writer, section_name(engine::SectionKind::recurrent, i), format, state);
            if (!ok) return ok;
        }
        for (int i = 0; i < kMlaLayers; i++) {
            const auto ok =
                add_floats(*writer, section_name(engine::SectionKind::latents, i), format,
                           std::span(latents).first(4096 * 512), std::span(latents).subspan(4096 * 512));
            if (!ok) return ok;
        }
        return commit ? writer->commit() : Result<void>{};
    };
    Result<void> ok;
    const auto print = [&](const char* what, double seconds) {
        fmt::print("  {:<44} {:6.2f} s  {:5.2f} GB/s of f32\n", what, seconds, bytes / seconds / 1e9);
    };
    fmt::print("K3's states and 4,096 positions, {:.0f} MB\n", bytes / 1e6);
    for (const auto format : {engine::StateFormat::bf16, engine::StateFormat::f32}) {
        const bool exact = format == engine::StateFormat::f32;
        const double before_drive = seconds_of([&] { ok = write(format, false); });
        const double durable = seconds_of([&] { ok = ok ? write(format, true) : ok; });
        print(exact ? "f32: hashed and written to the page cache" : "bf16: the same", before_drive);
        print("  and synced", durable);
        if (!ok) break;
    }
    const auto file = container::SectionFile::open(path);
    if (!ok || !file) {
        fmt::print(stderr, "{}\n", ok ? file.error().text() : ok.error().text());
        return 1;
    }
    const auto read = [&] {
        for (const container::SectionEntry& entry : file->entries()) {
            auto& to = entry.raw_bytes == state.size() * sizeof(float) ? state : latents;
            ok = file->read(entry, "a section", std::as_writable_bytes(std::span(to)));
        }
    };
    print("read from the page cache and verified", seconds_of(read));
    static_cast<void>(container::remove_file(path));
    return ok ? 0 : 1;
}

/// Logits of the tokens behind `position`, from a session that was written in this format and read again.
std::vector<float> continued(const engine::Model& model, std::span<const int32_t> ids, size_t position,
                             const engine::SaveOptions& options, const std::string& path) {
    engine::SessionOptions shape;
    shape.context_length = static_cast<int64_t>(ids.size());
    auto before = engine::Session::create(model, shape), after = engine::Session::create(model, shape);
    std::vector<float> out;
    if (!before || !after || !before->feed(ids.first(position)) || !before->save(path, options)) return out;
    const auto saved = engine::SavedSession::open(path);
    if (!saved || !after->load(*saved)) return out;
    for (const int32_t id : ids.subspan(position)) {
        if (!after->feed({&id, 1})) return {};
        out.insert(out.end(), after->logits().begin(), after->logits().end());
    }
    return out;
}

/// Kullback-Leibler divergence of the second from the first, in nats.
double divergence(std::span<const float> a, std::span<const float> b) {
    const auto log_sum = [](std::span<const float> logits) {
        const double largest = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (const float logit : logits) sum += std::exp(logit - largest);
        return largest + std::log(sum);
    };
    const double log_a = log_sum(a), log_b = log_sum(b);
    double out = 0;
    for (size_t i = 0; i < a.size(); i++) out += std::exp(a[i] - log_a) * (a[i] - log_a - (b[i] - log_b));
    return out;
}

int print_effect(const std::string& directory, const std::string& session, size_t position,
                 const std::string& path) {
    const auto model = engine::Model::open(directory);
    const auto text = engine::SavedSession::open(session);
    if (!model || !text || text->history().tokens.size() <= position) {
        fmt::print(stderr, "no model, or no session of more than {} tokens\n", position);
        return 1;
    }
    using enum engine::StateFormat;
    const std::span ids(text->history().tokens);
    const auto exact = continued(*model, ids, position, {f32, f32, true}, path);
    const auto width = static_cast<size_t>(model->config().vocab_size);
    fmt::print(
        "{} tokens after {}: divergence from the exact session in nats, and where the likeliest token is "
        "another\n",
        ids.size() - position, position);
    const auto row = [&](const char* name, const engine::SaveOptions& options) {
        const auto logits = continued(*model, ids, position, options, path);
        if (logits.size() != exact.size() || exact.empty()) return false;
        double sum = 0, most = 0;
        int others = 0;
        for (size_t at = 0; at < exact.size(); at += width) {
            const auto a = std::span(exact).subspan(at, width), b = std::span(logits).subspan(at, width);
            const double one = divergence(a, b);
            sum += one;
            most = std::max(most, one);
            others += std::max_element(a.begin(), a.end()) - a.begin() !=
                      std::max_element(b.begin(), b.end()) - b.begin();
        }
        fmt::print("  {:<28} mean {:.2e}  most {:.2e}  {} tokens\n", name,
                   sum / static_cast<double>(exact.size() / width), most, others);
        return true;
    };
    const bool ok = row("f32", {f32, f32, true}) && row("bf16 states", {bf16, f32, true}) &&
                    row("bf16 latents", {f32, bf16, true}) && row("bf16 both", {bf16, bf16, true});
    static_cast<void>(container::remove_file(path));
    return ok ? 0 : 1;
}

int run(int argc, char** argv) {
    CLI::App app("Sizes and times of session files: codings tried on a session, and a session of K3's size.");
    std::string session, model, place = "k3.session";
    size_t position = 512;
    app.add_option("SESSION", session, "A session file with f32 states, of a trained model")->required();
    app.add_option("--write", place, "Where to write the one of K3's size; it is removed")
        ->capture_default_str();
    auto* of = app.add_option("--model", model,
                              "Its model: says what bf16 does to the tokens behind --position instead");
    app.add_option("--position", position, "See --model")->needs(of)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (!model.empty()) return print_effect(model, session, position, place);
    const auto saved = engine::SavedSession::open(session);
    if (!saved) {
        fmt::print(stderr, "{}\n", saved.error().text());
        return 1;
    }
    print_codings("KDA states and convolution windows", floats_of(*saved, engine::SectionKind::recurrent));
    print_codings("MLA latents", floats_of(*saved, engine::SectionKind::latents));
    return print_k3(place);
}

}  // namespace
}  // namespace waste::bench

int main(int argc, char** argv) {
    return waste::bench::run(argc, argv);
}
