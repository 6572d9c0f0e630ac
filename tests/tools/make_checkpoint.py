#!/usr/bin/env python3
"""Writes synthetic checkpoints: the tensors, names and files of a release, with arbitrary weights.

    make_checkpoint.py DIR [--family k3|linear] [--bytes 1G] [--shards 4] [--seed 0]

Weights mean nothing, so such a model can be converted, verified, planned and measured, not judged. As a
module it also takes checkpoints apart and puts them together again, for tests that need a particular defect.
"""
import argparse
import json
import os
import struct

import numpy

ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, "I32": 4}
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


# Configurations -----------------------------------------------------------------------------------------

def k3_config(**sizes):
    """A small K3; `sizes` replaces keys of text_config or of its linear_attn_config."""
    linear = {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "gate_lower_bound": -5.0, "head_dim": 32,
              "num_heads": 2, "short_conv_kernel_size": 4, "use_full_rank_gate": True}
    text = {"model_type": "kimi_linear", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
            "attn_res_block_size": 3, "first_k_dense_replace": 1, "hidden_act": "situ", "hidden_size": 64,
            "intermediate_size": 96, "kv_lora_rank": 32, "latent_moe_use_norm": True,
            "max_position_embeddings": 4096, "mla_use_nope": True, "mla_use_output_gate": True,
            "moe_intermediate_size": 64, "moe_layer_freq": 1, "moe_renormalize": True,
            "moe_router_activation_func": "sigmoid", "num_attention_heads": 2, "num_expert_group": 1,
            "num_experts": 8, "num_experts_per_token": 2, "num_hidden_layers": 4, "num_key_value_heads": 2,
            "num_shared_experts": 1, "q_lora_rank": 48, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
            "rms_norm_eps": 1e-5, "routed_expert_hidden_size": 32, "routed_scaling_factor": 1.0,
            "tie_word_embeddings": False, "topk_group": 1, "v_head_dim": 32, "vocab_size": 256}
    replace(text, linear, sizes)
    return {"model_type": "kimi_k3", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
            "text_config": {**text, "linear_attn_config": linear}}


def kimi_linear_config(**sizes):
    """A small Kimi-Linear; `sizes` as for k3_config."""
    linear = {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 32, "num_heads": 2,
              "short_conv_kernel_size": 4}
    text = {"model_type": "kimi_linear", "bos_token_id": 1, "eos_token_id": 2, "first_k_dense_replace": 1,
            "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "kv_lora_rank": 32,
            "mla_use_nope": True, "model_max_length": 4096, "moe_intermediate_size": 32, "moe_layer_freq": 1,
            "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_attention_heads": 2,
            "num_expert_group": 1, "num_experts": 8, "num_experts_per_token": 2, "num_hidden_layers": 4,
            "num_key_value_heads": 2, "num_shared_experts": 1, "q_lora_rank": None, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16, "rms_norm_eps": 1e-5, "routed_scaling_factor": 2.446,
            "tie_word_embeddings": False, "topk_group": 1, "v_head_dim": 32, "vocab_size": 256}
    replace(text, linear, sizes)
    return {**text, "linear_attn_config": linear}


def replace(text, linear, sizes):
    for key, value in sizes.items():
        home = linear if key in linear else text
        if key not in home:
            raise KeyError(key)
        home[key] = value


# Tensors ------------------------------------------------------------------------------------------------

class TensorList:
    """Name, dtype and shape of every tensor that a release with this config has."""

    def __init__(self, config):
        self.k3 = config["model_type"] == "kimi_k3"
        self.text = config["text_config"] if self.k3 else config
        self.tensors = []
        self.prefix = "language_model." if self.k3 else ""
        self.hidden = self.text["hidden_size"]
        vocabulary = self.text["vocab_size"]
        self.add("model.embed_tokens.weight", vocabulary, self.hidden)
        for layer in range(self.text["num_hidden_layers"]):
            self.layer(layer, f"model.layers.{layer}.")
        if self.k3:
            self.residual("model.output_attn_res")
        self.add("model.norm.weight", self.hidden)
        self.add("lm_head.weight", vocabulary, self.hidden)

    def add(self, name, *shape, dtype="BF16"):
        self.tensors.append((self.prefix + name, dtype, list(shape)))

    def residual(self, name):
        self.add(name + "_norm.weight", self.hidden)
        self.add(name + "_proj.weight", 1, self.hidden)

    def layer(self, layer, at):
        if self.k3:
            self.residual(at + "self_attention_res")  # layer 0 has it too, and nobody reads it there
            self.residual(at + "mlp_res")
        self.add(at + "input_layernorm.weight", self.hidden)
        self.add(at + "post_attention_layernorm.weight", self.hidden)
        if layer + 1 in self.text["linear_attn_config"]["kda_layers"]:
            self.kda(at + "self_attn.")
        else:
            self.mla(at + "self_attn.")
        text = self.text
        if layer >= text["first_k_dense_replace"] and layer % text["moe_layer_freq"] == 0:
            self.moe(at + "block_sparse_moe.")
        else:
            self.mlp(at + "mlp.", text["intermediate_size"])

    def mlp(self, at, width):
        self.add(at + "gate_proj.weight", width, self.hidden)
        self.add(at + "up_proj.weight", width, self.hidden)
        self.add(at + "down_proj.weight", self.hidden, width)

    def kda(self, at):
        linear = self.text["linear_attn_config"]
        heads, head = linear["num_heads"], linear["head_dim"]
        width = heads * head
        for which in "qkv":
            self.add(f"{at}{which}_proj.weight", width, self.hidden)
            self.add(f"{at}{which}_conv1d.weight", width, 1, linear["short_conv_kernel_size"])
        self.add(at + "f_a_proj.weight", head, self.hidden)
        self.add(at + "f_b_proj.weight", width, head)
        self.add(at + "b_proj.weight", heads, self.hidden)
        self.add(at + "A_log", 1, 1, heads, 1, dtype="F32")
        self.add(at + "dt_bias", width, dtype="F32")
        if linear.get("use_full_rank_gate"):
            self.add(at + "g_proj.weight", width, self.hidden)
        else:
            self.add(at + "g_a_proj.weight", head, self.hidden)
            self.add(at + "g_b_proj.weight", width, head)
        self.add(at + "o_norm.weight", head)
        self.add(at + "o_proj.weight", self.hidden, width)

    def mla(self, at):
        text = self.text
        heads, rank = text["num_attention_heads"], text["kv_lora_rank"]
        query = heads * (text["qk_nope_head_dim"] + text["qk_rope_head_dim"])
        if text.get("q_lora_rank"):
            self.add(at + "q_a_proj.weight", text["q_lora_rank"], self.hidden)
            self.add(at + "q_a_layernorm.weight", text["q_lora_rank"])
            self.add(at + "q_b_proj.weight", query, text["q_lora_rank"])
        else:
            self.add(at + "q_proj.weight", query, self.hidden)
        self.add(at + "kv_a_proj_with_mqa.weight", rank + text["qk_rope_head_dim"], self.hidden)
        self.add(at + "kv_a_layernorm.weight", rank)
        self.add(at + "kv_b_proj.weight", heads * (text["qk_nope_head_dim"] + text["v_head_dim"]), rank)
        if text.get("mla_use_output_gate"):
            self.add(at + "g_proj.weight", heads * text["v_head_dim"], self.hidden)
        self.add(at + "o_proj.weight", self.hidden, heads * text["v_head_dim"])

    def moe(self, at):
        text = self.text
        latent = text.get("routed_expert_hidden_size") or self.hidden
        inner, experts = text["moe_intermediate_size"], text["num_experts"]
        self.add(at + "gate.weight", experts, self.hidden)
        self.add(at + "gate.e_score_correction_bias", experts, dtype="F32")
        if self.k3:
            self.add(at + "routed_expert_down_proj.weight", latent, self.hidden)
            self.add(at + "routed_expert_norm.weight", latent)
            self.add(at + "routed_expert_up_proj.weight", self.hidden, latent)
        self.mlp(at + "shared_experts.", text["num_shared_experts"] * inner)
        for expert in range(experts):
            for which, rows, cols in (("w1", inner, latent), ("w2", latent, inner), ("w3", inner, latent)):
                name = f"{at}experts.{expert}.{which}.weight"
                if self.k3:
                    self.add(name + "_packed", rows, cols // 2, dtype="U8")
                    self.add(name + "_scale", rows, cols // 32, dtype="U8")
                else:
                    self.add(name, rows, cols)


def tensor_bytes(dtype, shape):
    size = ELEMENT_BYTES[dtype]
    for dimension in shape:
        size *= dimension
    return size


class Values:
    """Arbitrary weights, cut from a pool at places that the seed decides: as fast as copying."""

    POOL = 1 << 22

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        normal = self.random.standard_normal(self.POOL, dtype=numpy.float32) * numpy.float32(0.05)
        self.pools = {
            "F32": normal,
            "BF16": (normal.view(numpy.uint32) >> 16).astype(numpy.uint16),
            "U8": self.random.integers(0, 256, self.POOL, dtype=numpy.uint8),
            "scale": self.random.integers(116, 124, self.POOL, dtype=numpy.uint8),
        }

    def write(self, file, name, dtype, size):
        pool = self.pools["scale" if name.endswith("_scale") else dtype]
        while size:
            begin = int(self.random.integers(0, self.POOL // 2))
            piece = pool[begin:begin + size // pool.itemsize]
            file.write(piece)
            size -= piece.nbytes


# Files --------------------------------------------------------------------------------------------------

def header_bytes(tensors):
    """`tensors`: (name, dtype, shape) in file order."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in tensors:
        size = tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} in file order."""
    with open(path, "rb") as file:
        content = file.read()
    length, = struct.unpack_from("<Q", content)
    out = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = (entry["dtype"], entry["shape"], content[8 + length + begin:8 + length + end])
    return out


def write_safetensors(path, tensors):
    with open(path, "wb") as file:
        file.write(header_bytes([(name, dtype, shape) for name, (dtype, shape, _) in tensors.items()]))
        for _, _, data in tensors.values():
            file.write(data)


def shard_names(count):
    if count == 1:
        return [SINGLE_NAME]
    return [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]


def write_index(directory, names_by_shard):
    weight_map = {name: shard for shard, names in names_by_shard.items() for name in names}
    with open(os.path.join(directory, INDEX_NAME), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


def write_config(directory, config):
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


def write_checkpoint(directory, config, shards=1, seed=0):
    """A whole checkpoint. Shards are cut by tensor count, so a layer may lie in two."""
    os.makedirs(directory)
    write_config(directory, config)
    tensors = TensorList(config).tensors
    values = Values(seed)
    names_by_shard = {}
    for i, shard in enumerate(shard_names(shards)):
        part = tensors[len(tensors) * i // shards:len(tensors) * (i + 1) // shards]
        names_by_shard[shard] = [name for name, _, _ in part]
        with open(os.path.join(directory, shard), "wb") as file:
            file.write(header_bytes(part))
            for name, dtype, shape in part:
                values.write(file, name, dtype, tensor_bytes(dtype, shape))
    if shards > 1:
        write_index(directory, names_by_shard)


def config_of_size(family, wanted_bytes):
    """A quarter of the bytes is embedding and head; experts have the release's own size, for K3 17.5 MB."""
    if family == "k3":
        sizes = {"hidden_size": 1024, "routed_expert_hidden_size": 3584, "moe_intermediate_size": 3072}
        expert_bytes = 3 * 3584 * 3072 * 17 // 32
    else:
        sizes = {"hidden_size": 2304, "moe_intermediate_size": 1024}
        expert_bytes = 3 * 2304 * 1024 * 2
    vocabulary = max(256, wanted_bytes // 4 // (4 * sizes["hidden_size"]))
    experts = max(2, -(-wanted_bytes * 3 // 4 // (3 * expert_bytes)))
    make = k3_config if family == "k3" else kimi_linear_config
    return make(vocab_size=vocabulary, num_experts=experts, **sizes)


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(description="Writes a synthetic checkpoint.")
    parser.add_argument("directory")
    parser.add_argument("--family", choices=("k3", "linear"), default="k3")
    parser.add_argument("--bytes", type=parse_size, help="about this size, e.g. 1G; default: as small as can be")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.bytes:
        config = config_of_size(arguments.family, arguments.bytes)
    else:
        config = k3_config() if arguments.family == "k3" else kimi_linear_config()
    write_checkpoint(arguments.directory, config, arguments.shards, arguments.seed)


if __name__ == "__main__":
    main()
