#!/usr/bin/env python3
"""Plants known mistakes in the engine, one at a time, and prints which tests notice.

  tests/mutations.py [--only WORD]

A mistake is a small textual patch to our own source, applied to a copy of the tree under build/mutations. The
kernel tests and the golden tests are rebuilt and run; a mistake that no test notices is a hole in the tests, and
the script exits with 1. Each `old` text must stand exactly once in its file, so a patch that no longer fits the
source is an error and not a silent success.
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
    Mistake("L2 norm eps 1e-12", "kernels/norm.cc",
            "std::sqrt(sum_of_squares(x, n) + 1e-6)", "std::sqrt(sum_of_squares(x, n) + 1e-12)"),
    Mistake("L2 norm divides by max(norm, eps)", "kernels/norm.cc",
            "std::sqrt(sum_of_squares(x, n) + 1e-6)", "std::fmax(std::sqrt(sum_of_squares(x, n)), 1e-6)"),
    Mistake("rms_norm_eps 1e-6 instead of 1e-5", "engine/config.cc",
            "config.rms_norm_eps = fields.number(\"rms_norm_eps\", 1e-12, 1.0);",
            "config.rms_norm_eps = 0.1f * fields.number(\"rms_norm_eps\", 1e-12, 1.0);"),
    Mistake("q not scaled by K^-0.5", "engine/layers/kda.cc",
            "kernels::l2_norm(q, 1.0f / std::sqrt(static_cast<float>(dim)), dim, q);",
            "kernels::l2_norm(q, 1.0f, dim, q);"),
    Mistake("the other family's decay gate", "engine/layers/kda.cc",
            "if (c.gate_lower_bound) {\n        kernels::kda_decay_bounded(decay, dt_bias, a_log, *c.gate_lower_bound,",
            "if (!c.gate_lower_bound) {\n        kernels::kda_decay_bounded(decay, dt_bias, a_log, -5.0f,"),
    Mistake("dt_bias added after the exp(A_log) factor (bounded)", "kernels/kda.cc",
            "sigmoid(a * (raw[i] + dt_bias[i]))", "sigmoid(a * raw[i] + dt_bias[i])"),
    Mistake("dt_bias added after the exp(A_log) factor (softplus)", "kernels/kda.cc",
            "std::exp(-a * softplus(raw[i] + dt_bias[i]))", "std::exp(-softplus(a * raw[i] + dt_bias[i]))"),
    Mistake("padded A_log read per channel", "engine/layers/kda.cc",
            "kernels::kda_decay_bounded(decay, dt_bias, a_log, *c.gate_lower_bound, dim, decay);",
            "(void)a_log;\n        for (int64_t i = 0; i < dim; i++)\n            kernels::kda_decay_bounded(decay + i, "
            "dt_bias + i, i < c.kda_num_heads ? weights.a_log[static_cast<size_t>(i)] : 0.0f, *c.gate_lower_bound, 1, "
            "decay + i);"),
    Mistake("conv taps reversed", "kernels/conv.cc",
            "sum += w[j] * ring[row * channels + c];\n        }\n        sum += w[rows] * newest;",
            "sum += w[rows - j] * ring[row * channels + c];\n        }\n        sum += w[0] * newest;"),
    Mistake("delta taken against the undecayed state", "kernels/scalar/kda.cc",
            "pk = __builtin_fmaf(head.k[i], decayed, pk);",
            "pk = __builtin_fmaf(head.k[i], state[i * head.value_dim + col], pk);"),
    Mistake("output read before the update", "kernels/scalar/kda.cc",
            "out[col] = __builtin_fmaf(kq, u, pq);", "out[col] = pq;"),
    Mistake("MXFP4 nibbles swapped", "kernels/mxfp4.cc",
            "return (both | both << 4) & 0x0f0f0f0fu;", "return ((both | both << 4) >> 4 & 0x000f000fu) | "
            "((both << 8) & 0x0f000f00u);"),
    Mistake("MXFP4 exponent off by one", "kernels/scalar/matvec.cc",
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
    Mistake("SiTU up branch unbounded", "kernels/activation.cc",
            "linear_beta == 0.0f ? up[i] : linear_beta * std::tanh(up[i] / linear_beta)",
            "linear_beta == 0.0f ? up[i] : up[i]"),
    Mistake("MLA output gate dropped", "engine/layers/mla.cc",
            "if (weights.g_proj) kernels::sigmoid_gate(", "if (step.position < 0) kernels::sigmoid_gate("),
    Mistake("MLA scaled by nope width only", "engine/layers/mla.cc",
            "std::sqrt(static_cast<float>(c.q_head_dim()))", "std::sqrt(static_cast<float>(c.qk_nope_head_dim))"),
    Mistake("AttnRes mixes normalised candidates", "kernels/attn_res.cc",
            "const float share = weight[i] / sum;",
            "double squares = 0;\n        for (int64_t c = 0; c < hidden_size; ++c) squares += double{candidates[i][c]} * "
            "double{candidates[i][c]};\n        const float share = weight[i] / sum / "
            "static_cast<float>(std::sqrt(squares / static_cast<double>(hidden_size) + double{eps}));"),
    Mistake("AttnRes output mix skipped", "engine/session.cc",
            "mix(weights.output_mix, snapshots)", "w.stream"),
    Mistake("snapshots banked a layer late", "engine/session.cc",
            "const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 0;",
            "const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 1;"),
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
    result = run(["ninja", "-C", str(directory), "kernel_tests", "engine_tests"])
    return result.returncode == 0, result.stdout + result.stderr


def failing_tests(directory):
    """Names of the kernel and golden tests that fail, each binary run once."""
    failed = []
    for binary, wanted in (("tests/kernels/kernel_tests", "*"), ("tests/engine/engine_tests", "*Golden*")):
        result = run([str(directory / binary), f"--gtest_filter={wanted}", "--gtest_brief=1"])
        names = re.findall(r"^\[  FAILED  \] ([^ ,]+)(?:,.*)? \(\d+ ms\)$", result.stdout, re.M)
        if result.returncode != 0 and not names:
            names = [f"{binary} ended with {result.returncode}"]
        failed += names
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
