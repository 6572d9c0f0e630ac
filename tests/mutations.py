#!/usr/bin/env python3
"""Plants known mistakes in the engine, one at a time, and prints which tests notice.

  tests/mutations.py [--only WORD]

A mistake is a small textual patch to our own source, applied to a copy of the tree under build/mutations. The
kernel tests, the golden tests and those of what must not change a result are rebuilt and run; a mistake that no
test notices is a hole in the tests, and the script exits with 1. Each `old` text must stand exactly once in its
file, so a patch that no longer fits the source is an error and not a silent success.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutations"


@dataclass
class Mistake:
    name: str
    file: str
    old: str
    new: str


MISTAKES = [
    Mistake("q_a/kv_a norm eps 1e-5 instead of 1e-6", "engine/config.h",
            "kLoraNormEps = 1e-6f", "kLoraNormEps = 1e-5f"),
    Mistake("L2 norm eps 1e-12", "kernels/portable/norm.cc",
            "__builtin_sqrt(sum_of_squares(x, n) + 1e-6)", "__builtin_sqrt(sum_of_squares(x, n) + 1e-12)"),
    Mistake("L2 norm divides by max(norm, eps)", "kernels/portable/norm.cc",
            "const double root = __builtin_sqrt(sum_of_squares(x, n) + 1e-6);",
            "const double norm = __builtin_sqrt(sum_of_squares(x, n));\n"
            "    const double root = norm > 1e-6 ? norm : 1e-6;"),
    Mistake("rms_norm_eps 1e-6 instead of 1e-5", "engine/config.cc",
            "config.rms_norm_eps = fields.number(\"rms_norm_eps\", 1e-12, 1.0);",
            "config.rms_norm_eps = 0.1f * fields.number(\"rms_norm_eps\", 1e-12, 1.0);"),
    Mistake("q not scaled by K^-0.5", "engine/layers/kda.cc",
            "const float query_scale = 1.0f / std::sqrt(static_cast<float>(dim));",
            "const float query_scale = 1.0f;"),
    Mistake("the other family's decay gate", "engine/layers/kda.cc",
            "call.gate_form = c.gate_lower_bound ?", "call.gate_form = !c.gate_lower_bound ?"),
    Mistake("dt_bias added after the exp(A_log) factor (bounded)", "kernels/portable/activation.cc",
            "lower_bound * sigmoid(a * z).value()",
            "lower_bound * sigmoid(a * strip.load(raw) + strip.load(dt_bias)).value()"),
    Mistake("dt_bias added after the exp(A_log) factor (softplus)", "kernels/portable/activation.cc",
            "-a * softplus(z)", "-softplus(a * strip.load(raw) + strip.load(dt_bias))"),
    Mistake("A_log read by channel", "engine/layers/kda.cc",
            "weights.a_log[static_cast<size_t>(head)]",
            "weights.a_log[static_cast<size_t>(column % c.kda_num_heads)]"),
    Mistake("conv taps reversed", "kernels/portable/conv.cc",
            "sum = fma(weight_of(j), window.input(j), sum);\n        sum = fma(weight_of(taps - 1), newest, sum);",
            "sum = fma(weight_of(taps - 1 - j), window.input(j), sum);\n        sum = fma(weight_of(0), newest, sum);"),
    Mistake("delta taken against the undecayed state", "kernels/scalar/kda.cc",
            "pk = __builtin_fmaf(head.k[i], decayed, pk);",
            "pk = __builtin_fmaf(head.k[i], state[i * head.value_dim + col], pk);"),
    Mistake("output read before the update", "kernels/scalar/kda.cc",
            "out[col] = __builtin_fmaf(kq, u, pq);", "out[col] = pq;"),
    Mistake("MXFP4 nibbles swapped", "kernels/mxfp4.cc",
            "return (both | both << 4) & 0x0f0f0f0fu;", "return ((both | both << 4) >> 4 & 0x000f000fu) | "
            "((both << 8) & 0x0f000f00u);"),
    Mistake("MXFP4 exponent off by one", "kernels/scalar/matmul.cc",
            "static constexpr float kScaleFactor = 0.5f;", "static constexpr float kScaleFactor = 1.0f;"),
    Mistake("router bias also in the weights", "kernels/router.cc",
            "score[ids[i]] / (sum + 1e-20f)", "choice[ids[i]] / (sum + 1e-20f)"),
    Mistake("top-k weights not renormalised", "kernels/router.cc",
            "const bool renormalize = rule.renormalize && rule.top_k > 1;", "const bool renormalize = false;"),
    Mistake("routed_scaling_factor ignored", "engine/layers/moe.cc",
            "c.routed_scaling_factor};", "1.0f};"),
    Mistake("shared experts dropped", "engine/layers/moe.cc",
            "if (weights.shared) {", "if (weights.shared && step.position < 0) {"),
    Mistake("routed_expert_norm skipped", "engine/layers/moe.cc",
            "if (!weights.latent_norm.empty()) {", "if (weights.latent_norm.size() == 1) {"),
    Mistake("SiTU up branch unbounded", "kernels/portable/activation.cc",
            "const auto run = linear_beta == 0.0f ? situ_glu_as<false> : situ_glu_as<true>;",
            "const auto run = situ_glu_as<false>;"),
    Mistake("MLA output gate dropped", "engine/layers/mla.cc",
            "if (weights.g_proj) {\n        step.executor.each_token(",
            "if (step.position < 0) {\n        step.executor.each_token("),
    Mistake("MLA scaled by nope width only", "engine/layers/mla.cc",
            "std::sqrt(static_cast<float>(c_.q_head_dim()))", "std::sqrt(static_cast<float>(c_.qk_nope_head_dim))"),
    Mistake("AttnRes mixes normalised candidates", "kernels/portable/attn_res.cc",
            "softmax(share, count);\n\n",
            "softmax(share, count);\n"
            "    for (int64_t i = 0; i < count; ++i) {\n"
            "        Wide squares;\n"
            "        for_wide(hidden_size, [&](auto at) {\n"
            "            const Wide value = at(candidates[i]);\n"
            "            squares.add_product(value, value);\n"
            "        });\n"
            "        const double mean = squares.fold() / static_cast<double>(hidden_size);\n"
            "        share[i] /= static_cast<float>(__builtin_sqrt(mean + double{eps}));\n"
            "    }\n"),
    Mistake("AttnRes output mix skipped", "engine/session.cc",
            "mix_and_norm(step, weights.output_mix, snapshots, weights.norm, begin);",
            "mix_and_norm(step, {}, snapshots, weights.norm, begin);"),
    Mistake("snapshots banked a layer late", "engine/session.cc",
            "const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 0;",
            "const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 1;"),
    Mistake("chunks counted from a call's first token", "kernels/kda.cc",
            "const bool on_grid = (sequence.position + done) % kKdaChunk == 0;",
            "const bool on_grid = done % kKdaChunk == 0;"),
    Mistake("a head's tokens cut off the grid", "engine/layers/kda.cc",
            "kernels::kKdaChunk - (step.position + begin) % kernels::kKdaChunk;",
            "kernels::kKdaChunk - begin % kernels::kKdaChunk;"),
    Mistake("a chunk's tokens do not see themselves", "kernels/scalar/kda_chunk.cc",
            "for (int64_t j = 0; j <= i; ++j)", "for (int64_t j = 0; j < i; ++j)"),
    Mistake("blocks end off the grid", "engine/session.cc",
            "const int64_t on_grid = block_tokens_ - state_.position % kernels::kKdaChunk;",
            "const int64_t on_grid = block_tokens_;"),
    Mistake("pairs and their rows mixed up", "engine/layers/experts.cc",
            "w.pairs[static_cast<size_t>(row)] = static_cast<int64_t>(pair);\n        w.pair_row[pair] = row;",
            "w.pair_row[static_cast<size_t>(row)] = static_cast<int64_t>(pair);\n        w.pairs[pair] = row;"),
    Mistake("another token's codes gathered for an expert", "engine/layers/experts.cc",
            "block * from.tokens + tokens[static_cast<size_t>(i)];",
            "block * from.tokens + tokens[static_cast<size_t>(i > 0 ? i - 1 : 0)];"),
    Mistake("another token's values gathered for an expert", "engine/layers/experts.cc",
            "z_.values + tokens[i] * z_.stride", "z_.values + tokens[i > 0 ? i - 1 : 0] * z_.stride"),
    Mistake("an expert's last task dropped where it is not full", "engine/layers/experts.cc",
            "begin < end; begin += kExpertTile", "begin + kExpertTile <= end; begin += kExpertTile"),
    Mistake("MLA's last span not merged", "engine/layers/mla.cc",
            "for (int64_t span = 1; span < span_count(token); span++) {",
            "for (int64_t span = 1; span + 1 < span_count(token); span++) {"),
    Mistake("MLA's spans merged before their turn", "engine/layers/mla.cc",
            "partial(token, begin, head, span), all);", "partial(token, begin, head, span - 1), all);"),
    Mistake("MLA sees the block's later tokens", "engine/layers/mla.cc",
            "std::min(from + kernels::kMlaSpan, positions(token));",
            "std::min(from + kernels::kMlaSpan, step_.position + step_.tokens);"),
    Mistake("the last tile of tokens dropped where it is not full", "kernels/tile.h",
            "if (count > tokens - t) count = tokens - t;", "if (count > tokens - t) continue;"),
]


def run(command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def copy_tree(source):
    """The sources as they are now; files that did not change keep their time stamps, so builds are incremental."""
    listed = run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]).stdout.splitlines()
    if not listed:
        sys.exit("mutations: not a git checkout")
    for name in listed:
        if name.startswith("tests/data/") or not (ROOT / name).is_file():
            continue
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            shutil.copy(ROOT / name, target)
    data = source / "tests" / "data"
    if not data.exists():
        data.symlink_to(ROOT / "tests" / "data")


def build(directory):
    result = run(["ninja", "-C", str(directory), "kernel_tests", "engine_tests", "slow_engine_tests"])
    return result.returncode == 0, result.stdout + result.stderr


def failing_tests(directory):
    """Names of the tests that fail in the first binary where any does."""
    failed = []
    for binary, wanted in (("tests/kernels/kernel_tests", "*"),
                           ("tests/engine/engine_tests", "*Golden*:*Invariance*"),
                           ("tests/engine/slow_engine_tests", "LongAttention*:PathSwitch*:*PathSwitch*")):
        result = run([str(directory / binary), f"--gtest_filter={wanted}", "--gtest_brief=1"])
        names = re.findall(r"^\[  FAILED  \] ([^ ,]+)(?:,.*)? \(\d+ ms\)$", result.stdout, re.M)
        if result.returncode != 0 and not names:
            names = [f"{binary} ended with {result.returncode}"]
        failed += names
        if failed:
            break
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="only mistakes whose name contains this")
    options = parser.parse_args()
    source, binaries = WORK / "source", WORK / "build"
    source.mkdir(parents=True, exist_ok=True)
    copy_tree(source)
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    configured = run(["cmake", "-S", str(source), "-B", str(binaries), "-G", "Ninja",
                      "-DCMAKE_BUILD_TYPE=Release", "-DWASTE_WERROR=OFF"] + launcher)
    if configured.returncode != 0:
        sys.exit(f"mutations: cmake failed\n{configured.stderr}")
    built, output = build(binaries)
    if not built:
        sys.exit(f"mutations: the source does not build\n{output[-3000:]}")
    before = failing_tests(binaries)
    if before:
        sys.exit(f"mutations: tests fail before anything is planted: {', '.join(before)}")

    unnoticed = 0
    for mistake in MISTAKES:
        if options.only not in mistake.name:
            continue
        path = source / mistake.file
        text = path.read_text()
        if text.count(mistake.old) != 1:
            sys.exit(f"mutations: '{mistake.name}' does not fit {mistake.file} any more")
        path.write_text(text.replace(mistake.old, mistake.new))
        try:
            built, output = build(binaries)
            if not built:
                sys.exit(f"mutations: '{mistake.name}' does not build\n{output[-3000:]}")
            noticed = failing_tests(binaries)
        finally:
            path.write_text(text)
        unnoticed += not noticed
        some = ", ".join(noticed[:3]) + (f" and {len(noticed) - 3} more" if len(noticed) > 3 else "")
        print(f"{mistake.name}: {some or 'NOT NOTICED'}", flush=True)
    print(f"{unnoticed} mistakes not noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
