#!/usr/bin/env python3
"""Damaged and hostile files: each is refused with one line that names it, and nothing crashes.

    test_bad_input.py BINARY SOURCE_DIR [TEST…]

A case is a row: a name, what is done to a good folder, and words that the message must hold.
"""
import base64
import json
import os
import random
import shutil
import struct
import subprocess
import unittest

import command_support
from command_support import CommandTest, cut, flip, own_file
import make_checkpoint
from make_checkpoint import INDEX_NAME, read_safetensors, write_safetensors

FIRST, SECOND = make_checkpoint.shard_names(2)
EXPERT = "language_model.model.layers.2.block_sparse_moe.experts.5.w2.weight"
NORM = "language_model.model.layers.1.input_layernorm.weight"
MATRIX = "language_model.model.layers.1.self_attn.o_proj.weight"
DEEP = b"[" * 100000


# What can be done to a file ------------------------------------------------------------------------------

def write(path, content):
    own_file(path)
    with open(path, "wb") as file:
        file.write(content)


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def replaced(name, content):
    return lambda directory: write(os.path.join(directory, name), content)


def changed(name, change):
    """`change(bytes)` returns the new content."""
    def apply(directory):
        path = os.path.join(directory, name)
        write(path, change(content_of(path)))
    return apply


def removed(name):
    return lambda directory: os.unlink(os.path.join(directory, name))


def cut_by(name, missing_bytes):
    return lambda directory: cut(os.path.join(directory, name), missing_bytes)


def halved(name):
    return changed(name, lambda content: content[:len(content) // 2])


def flipped(name, offset, mask=0x01):
    return lambda directory: flip(os.path.join(directory, name), offset, mask)


def a_directory(name):
    def apply(directory):
        path = os.path.join(directory, name)
        os.unlink(path)
        os.makedirs(path)
    return apply


def a_link_to_itself(name):
    def apply(directory):
        path = os.path.join(directory, name)
        os.unlink(path)
        os.symlink(name, path)
    return apply


def edited(name, edit):
    """`edit(value)` changes a parsed JSON file."""
    def apply(directory):
        path = os.path.join(directory, name)
        value = json.loads(content_of(path))
        edit(value)
        write(path, json.dumps(value).encode())
    return apply


def text_key(key, value):
    return edited("config.json", lambda config: config["text_config"].update({key: value}))


def retensored(edit, name=SECOND):
    """`edit(dict)` changes the tensors of a shard, {name: (dtype, shape, bytes)}; the index stays."""
    def apply(directory):
        path = os.path.join(directory, name)
        tensors = read_safetensors(path)
        edit(tensors)
        write_safetensors(own_file(path), tensors)
    return apply


def reheadered(edit, name=SECOND):
    """`edit(dict)` changes a shard's header as it stands in the file; the data stays."""
    def apply(directory):
        path = os.path.join(directory, name)
        content = content_of(path)
        length, = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + length])
        edit(header)
        text = json.dumps(header).encode()
        write(path, struct.pack("<Q", len(text)) + text + content[8 + length:])
    return apply


def header_text(change, name=SECOND):
    """`change(bytes)` returns the header's new text."""
    def apply(content):
        length, = struct.unpack_from("<Q", content)
        text = change(content[8:8 + length])
        return struct.pack("<Q", len(text)) + text + content[8 + length:]
    return changed(name, apply)


def data_byte(tensor, value, width=1):
    """Overwrites the first `width` bytes of a tensor."""
    def edit(tensors):
        dtype, shape, data = tensors[tensor]
        tensors[tensor] = (dtype, shape, value + data[width:])
    return retensored(edit)


def set_field(tensor, field, value):
    return reheadered(lambda header: header[tensor].update({field: value}))


def tensor_in_both(directory):
    first, second = (os.path.join(directory, name) for name in (FIRST, SECOND))
    tensors = read_safetensors(second)
    tensors[NORM] = read_safetensors(first)[NORM]
    write_safetensors(own_file(second), tensors)


def weight_map(edit):
    return edited(INDEX_NAME, lambda index: edit(index["weight_map"]))


def ranks(change):
    """`change(list of lines)` edits tiktoken.model."""
    def apply(content):
        lines = content.decode().splitlines()
        change(lines)
        return ("\n".join(lines) + "\n").encode()
    return changed("tiktoken.model", apply)


# The cases -----------------------------------------------------------------------------------------------

# (name, damage, words of the message)
RELEASE_CASES = [
    ("config empty", replaced("config.json", b""), ["config.json"]),
    ("config missing", removed("config.json"), ["config.json"]),
    ("config a directory", a_directory("config.json"), ["config.json"]),
    ("config a link to itself", a_link_to_itself("config.json"), ["config.json"]),
    ("config cut", halved("config.json"), ["config.json"]),
    ("config not UTF-8", changed("config.json", lambda c: c.replace(b"situ", b"\xff\xfe", 1)),
     ["config.json"]),
    ("config a list", replaced("config.json", b"[]"), ["config.json"]),
    ("config deep", replaced("config.json", DEEP), ["config.json"]),
    ("config of zeros", replaced("config.json", bytes(1000)), ["config.json"]),
    ("config huge", replaced("config.json", b" " * (17 << 20)), ["config.json"]),
    ("config number beyond double", changed("config.json", lambda c: c.replace(b"25.0", b"1e999")),
     ["config.json"]),
    ("config a newline in model_type",
     edited("config.json", lambda c: c.update(model_type="a\nwaste: all is well")), ["config.json"]),
    ("config hidden_size a string", text_key("hidden_size", "64"), ["config.json", "hidden_size"]),
    ("config hidden_size negative", text_key("hidden_size", -64), ["config.json", "hidden_size"]),
    ("config hidden_size 2^40", text_key("hidden_size", 1 << 40), ["config.json", "hidden_size"]),
    ("config hidden_size 2^64", text_key("hidden_size", 1 << 64), ["config.json", "hidden_size"]),
    ("config hidden_size other than the tensors", text_key("hidden_size", 96), [FIRST, "embed_tokens"]),
    ("config vocab_size other than the tensors", text_key("vocab_size", 1 << 24), [FIRST, "embed_tokens"]),
    ("config more experts than tensors", text_key("num_experts", 9), ["gate.weight", "[8, 64]"]),
    ("config experts without end", text_key("num_experts", 1 << 20), ["gate.weight"]),
    ("config more layers than lists", text_key("num_hidden_layers", 5), ["config.json", "kda_layers"]),
    ("config layer in two lists",
     edited("config.json", lambda c: c["text_config"]["linear_attn_config"]["kda_layers"].append(2)),
     ["config.json", "kda_layers"]),
    ("config dense layers that have experts", text_key("first_k_dense_replace", 2), ["layers.1.mlp"]),
    ("config without a gate that is there", text_key("mla_use_output_gate", False), ["g_proj", "config.json"]),

    ("index empty", replaced(INDEX_NAME, b""), [INDEX_NAME]),
    ("index cut", halved(INDEX_NAME), [INDEX_NAME]),
    ("index not UTF-8", changed(INDEX_NAME, lambda c: c.replace(b"lm_head", b"lm_\xff\xfead", 1)), [INDEX_NAME]),
    ("index a list", replaced(INDEX_NAME, b"[]"), [INDEX_NAME]),
    ("index deep", replaced(INDEX_NAME, DEEP), [INDEX_NAME]),
    ("index without weight_map", replaced(INDEX_NAME, b"{}"), [INDEX_NAME]),
    ("index of nothing", replaced(INDEX_NAME, b'{"weight_map": {}}'), [INDEX_NAME]),
    ("index weight_map a list", replaced(INDEX_NAME, b'{"weight_map": []}'), [INDEX_NAME]),
    ("index entry a number", weight_map(lambda m: m.update({NORM: 1})), [INDEX_NAME, NORM]),
    ("index pointing at itself", weight_map(lambda m: m.update({NORM: INDEX_NAME})), [INDEX_NAME]),
    ("index leaving the folder", weight_map(lambda m: m.update({NORM: "../x.safetensors"})), [INDEX_NAME]),
    ("index with an absolute path", weight_map(lambda m: m.update({NORM: "/x.safetensors"})), [INDEX_NAME]),
    ("index to a missing shard", weight_map(lambda m: m.update({NORM: "no.safetensors"})), ["no.safetensors"]),
    ("index to the wrong shard", weight_map(lambda m: m.update({NORM: SECOND if m[NORM] == FIRST else FIRST})),
     [NORM]),
    ("index with a tensor nobody has", weight_map(lambda m: m.update({"ghost": FIRST})), ["ghost"]),
    ("index missing", removed(INDEX_NAME), [".safetensors"]),
    ("index a link to itself", a_link_to_itself(INDEX_NAME), [".safetensors"]),

    ("shard empty", replaced(SECOND, b""), [SECOND]),
    ("shard of four bytes", replaced(SECOND, b"\1\0\0\0"), [SECOND]),
    ("shard missing", removed(SECOND), [SECOND]),
    ("shard a directory", a_directory(SECOND), [SECOND]),
    ("shard a link to itself", a_link_to_itself(SECOND), [SECOND]),
    ("shard one byte short", cut_by(SECOND, 1), [SECOND, "1 bytes are missing"]),
    ("shard halved", halved(SECOND), [SECOND, "missing"]),
    ("shard header of 2^63 bytes", changed(SECOND, lambda c: struct.pack("<Q", 1 << 63) + c[8:]), [SECOND]),
    ("shard header of 2^64-1 bytes", changed(SECOND, lambda c: b"\xff" * 8 + c[8:]), [SECOND]),
    ("shard header longer than the file", changed(SECOND, lambda c: struct.pack("<Q", len(c)) + c[8:]),
     [SECOND]),
    ("shard header empty", header_text(lambda t: b""), [SECOND]),
    ("shard header no JSON", header_text(lambda t: t[:-1]), [SECOND]),
    ("shard header not UTF-8", header_text(lambda t: t.replace(b"o_proj", b"\xff_proj", 1)), [SECOND]),
    ("shard header deep", header_text(lambda t: DEEP), [SECOND]),
    ("shard header a list", header_text(lambda t: b"[]"), [SECOND]),
    ("shard unknown dtype", set_field(EXPERT + "_packed", "dtype", "F4"), [SECOND, "F4"]),
    ("shard dtype a number", set_field(EXPERT + "_packed", "dtype", 4), [SECOND, EXPERT]),
    ("shard shape overflow", set_field(EXPERT + "_packed", "shape", [1 << 62, 8]), [SECOND, EXPERT]),
    ("shard shape 2^64", set_field(EXPERT + "_packed", "shape", [1 << 64]), [SECOND, EXPERT]),
    ("shard shape oversized", set_field(EXPERT + "_packed", "shape", [1 << 20, 1 << 20]), [SECOND, EXPERT]),
    ("shard shape negative", set_field(EXPERT + "_packed", "shape", [-32, -32]), [SECOND, EXPERT]),
    ("shard shape with fractions", set_field(EXPERT + "_packed", "shape", [32.5, 32]), [SECOND, EXPERT]),
    ("shard shape of nine dimensions", set_field(EXPERT + "_packed", "shape", [1] * 7 + [32, 32]),
     [SECOND, EXPERT]),
    ("shard shape transposed", set_field("language_model.lm_head.weight", "shape", [64, 256]), ["lm_head"]),
    ("shard offsets beyond the data", set_field(EXPERT + "_packed", "data_offsets", [1 << 40, (1 << 40) + 1024]),
     [SECOND]),
    ("shard offsets backwards", set_field(EXPERT + "_packed", "data_offsets", [1024, 0]), [SECOND, EXPERT]),
    ("shard offsets beyond 2^64", set_field(EXPERT + "_packed", "data_offsets", [(1 << 64) - 1024, 1 << 64]),
     [SECOND]),
    ("shard offsets three", set_field(EXPERT + "_packed", "data_offsets", [0, 1024, 1]), [SECOND, EXPERT]),
    ("shard tensors overlapping", set_field(EXPERT + "_packed", "data_offsets", [0, 1024]), [SECOND, "overlap"]),
    ("shard field missing", reheadered(lambda h: h[EXPERT + "_packed"].pop("shape")), [SECOND, EXPERT]),
    ("shard field unknown", set_field(EXPERT + "_packed", "sparse", True), [SECOND, EXPERT]),
    ("shard tensor twice",
     header_text(lambda t: t[:-1] + b', "x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}' * 2 + b"}"),
     [SECOND, "x"]),
    ("shards that share a tensor", tensor_in_both, [NORM]),
    ("tensor missing", retensored(lambda t: t.pop(EXPERT + "_scale")), [EXPERT + "_scale"]),
    ("tensor missing from index and shard",
     lambda d: (retensored(lambda t: t.pop(EXPERT + "_scale"))(d),
                weight_map(lambda m: m.pop(EXPERT + "_scale"))(d)), [EXPERT + "_scale"]),
    ("tensor nobody expects", reheadered(lambda h: h.update({
        "language_model.model.layers.3.self_attn.extra": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})),
     [SECOND, "self_attn.extra", "config.json"]),
    ("expert weights of the wrong dtype", set_field(EXPERT + "_packed", "dtype", "I8"), [SECOND, EXPERT, "I8"]),
    ("head of the wrong dtype", set_field("language_model.lm_head.weight", "dtype", "I16"),
     [SECOND, "lm_head", "I16"]),

    ("tokenizer empty", replaced("tiktoken.model", b""), ["tiktoken.model"]),
    ("tokenizer not base64", ranks(lambda lines: lines.__setitem__(7, "!!!! 7")), ["tiktoken.model", "line 8"]),
    ("tokenizer without a rank", ranks(lambda lines: lines.__setitem__(7, "IQ==")), ["tiktoken.model", "line 8"]),
    ("tokenizer of bytes", replaced("tiktoken.model", bytes(range(256)) * 9), ["tiktoken.model"]),
    ("tokenizer rank missing", ranks(lambda lines: lines.pop(7)), ["tiktoken.model"]),
    ("tokenizer rank twice", ranks(lambda lines: lines.append(lines[7])), ["tiktoken.model"]),
    ("tokenizer rank huge", ranks(lambda lines: lines.append("YWJj 99999999999999999999")), ["tiktoken.model"]),
    ("tokenizer rank negative", ranks(lambda lines: lines.append("YWJj -1")), ["tiktoken.model"]),
    ("tokenizer rank without a row", ranks(lambda lines: lines.append("YWJj 300")), ["tiktoken.model"]),
    ("tokenizer too large", replaced("tiktoken.model", b"IQ== 0\n" * (10 << 20)), ["tiktoken.model"]),
    ("special tokens empty", replaced("tokenizer_config.json", b""), ["tokenizer_config.json"]),
    ("special tokens cut", halved("tokenizer_config.json"), ["tokenizer_config.json"]),
    ("special tokens not UTF-8", changed("tokenizer_config.json", lambda c: c.replace(b"BOS", b"\xff\xfe")),
     ["tokenizer_config.json"]),
    ("special tokens a list", replaced("tokenizer_config.json", b"[]"), ["tokenizer_config.json"]),
    ("special tokens deep", replaced("tokenizer_config.json", DEEP), ["tokenizer_config.json"]),
    ("special token without text",
     edited("tokenizer_config.json", lambda c: c["added_tokens_decoder"].update({"259": {}})),
     ["tokenizer_config.json", "259"]),
    ("special token id no number",
     edited("tokenizer_config.json", lambda c: c["added_tokens_decoder"].update({"x": {"content": "y"}})),
     ["tokenizer_config.json", "x"]),
]

# Found only when the weights are read: a conversion that has begun stays, to be looked at or removed.
WEIGHT_CASES = [
    ("a NaN in a matrix", data_byte("language_model.lm_head.weight", b"\xc0\x7f", 2), [SECOND, "lm_head", "NaN"]),
    ("an infinity in a norm", data_byte("language_model.model.norm.weight", b"\x80\x7f", 2),
     [SECOND, "model.norm", "infinity"]),
    ("scale byte 255", data_byte(EXPERT + "_scale", b"\xff"), [SECOND, EXPERT + "_scale", "255"]),
]


def manifest(edit):
    return edited("manifest.json", edit)


def tensor_field(field, value):
    return manifest(lambda m: m["trunk"]["tensors"][3].update({field: value}))


def bank_field(field, value):
    return manifest(lambda m: m["banks"][1].update({field: value}))


def swap_banks(directory):
    one, two = (os.path.join(directory, f"experts-00{layer}.bin") for layer in (1, 2))
    os.rename(one, one + ".x")
    os.rename(two, one)
    os.rename(one + ".x", two)


CONTAINER_CASES = [
    ("manifest empty", replaced("manifest.json", b""), ["manifest.json"]),
    ("manifest cut", halved("manifest.json"), ["manifest.json"]),
    ("manifest not UTF-8", changed("manifest.json", lambda c: c.replace(b"lm_head", b"lm_\xff\xfead", 1)),
     ["manifest.json"]),
    ("manifest a list", replaced("manifest.json", b"[]"), ["manifest.json"]),
    ("manifest deep", replaced("manifest.json", DEEP), ["manifest.json"]),
    ("manifest of zeros", replaced("manifest.json", bytes(4096)), ["manifest.json"]),
    ("manifest huge", replaced("manifest.json", b" " * (33 << 20)), ["manifest.json"]),
    ("manifest of another format", manifest(lambda m: m.update(format="soup")), ["manifest.json"]),
    ("manifest of a later version", manifest(lambda m: m.update(version=2)), ["manifest.json", "version"]),
    ("manifest version a string", manifest(lambda m: m.update(version="1")), ["manifest.json", "version"]),
    ("manifest without a trunk", manifest(lambda m: m.pop("trunk")), ["manifest.json", "trunk"]),
    ("manifest without tensors", manifest(lambda m: m["trunk"].pop("tensors")), ["manifest.json", "tensors"]),
    ("manifest trunk size huge", manifest(lambda m: m["trunk"].update(bytes=1 << 60)), ["trunk.bin", "missing"]),
    ("manifest trunk leaving the folder", manifest(lambda m: m["trunk"].update(file="../trunk.bin")),
     ["manifest.json", "trunk"]),
    ("manifest without banks", manifest(lambda m: m.pop("banks")), ["manifest.json", "banks"]),
    ("manifest without config", manifest(lambda m: m.pop("config")), ["manifest.json", "config"]),
    ("manifest another config", manifest(lambda m: m.update(config=m["config"].replace("situ", "silu"))),
     ["manifest.json"]),
    ("manifest fingerprint wrong", manifest(lambda m: m.update(fingerprint="0" * 32)),
     ["manifest.json", "fingerprint"]),
    ("manifest fingerprint short", manifest(lambda m: m.update(fingerprint="0")),
     ["manifest.json", "fingerprint"]),
    ("manifest tensor twice", manifest(lambda m: m["trunk"]["tensors"].append(m["trunk"]["tensors"][3])),
     ["manifest.json"]),
    ("manifest tensor gone", manifest(lambda m: m["trunk"]["tensors"].pop(3)), ["manifest.json"]),
    ("manifest tensor format unknown", tensor_field("format", "q3"), ["manifest.json", "q3"]),
    ("manifest tensor layout unknown", tensor_field("layout", "heap"), ["manifest.json", "heap"]),
    ("manifest tensor shape huge", tensor_field("shape", [1 << 40, 1 << 40]), ["manifest.json", "shape"]),
    ("manifest tensor shape negative", tensor_field("shape", [-1, 64]), ["manifest.json", "shape"]),
    ("manifest tensor shape empty", tensor_field("shape", []), ["manifest.json", "shape"]),
    ("manifest tensor beyond the file", tensor_field("offset", 1 << 40), ["manifest.json", "offset"]),
    ("manifest tensor offset odd", tensor_field("offset", 4097), ["manifest.json", "offset"]),
    ("manifest tensor offset 2^64", tensor_field("offset", 1 << 64), ["manifest.json", "offset"]),
    ("manifest tensor bytes wrong", tensor_field("bytes", 1), ["manifest.json", "bytes"]),
    ("manifest tensor name a number", tensor_field("name", 5), ["manifest.json", "name"]),
    ("manifest bank leaving the folder", bank_field("file", "../experts-002.bin"), ["manifest.json"]),
    ("manifest bank with an absolute path", bank_field("file", "/etc/passwd"), ["manifest.json"]),
    ("manifest bank layer twice", bank_field("layer", 1), ["manifest.json", "layer"]),
    ("manifest bank experts huge", bank_field("experts", 1 << 40), ["manifest.json"]),
    ("manifest bank size wrong", bank_field("bytes", 4096), ["manifest.json"]),
    ("manifest file leaving the folder",
     manifest(lambda m: m["files"][0].update(name="../../../etc/passwd")), ["manifest.json"]),
    ("trunk empty", replaced("trunk.bin", b""), ["trunk.bin"]),
    ("trunk missing", removed("trunk.bin"), ["trunk.bin"]),
    ("trunk a directory", a_directory("trunk.bin"), ["trunk.bin"]),
    ("trunk one byte short", cut_by("trunk.bin", 1), ["trunk.bin", "missing"]),
    ("trunk halved", halved("trunk.bin"), ["trunk.bin", "missing"]),
    ("trunk one byte longer", changed("trunk.bin", lambda c: c + b"\0"), ["trunk.bin"]),
    ("bank empty", replaced("experts-002.bin", b""), ["experts-002.bin"]),
    ("bank missing", removed("experts-002.bin"), ["experts-002.bin"]),
    ("bank one byte short", cut_by("experts-002.bin", 1), ["experts-002.bin", "missing"]),
    ("bank of zeros", changed("experts-002.bin", lambda c: bytes(len(c))), ["experts-002.bin"]),
    ("bank footer flipped", flipped("experts-002.bin", -20), ["experts-002.bin"]),
    ("bank magic flipped", flipped("experts-002.bin", -72), ["experts-002.bin"]),
    ("bank table flipped", flipped("experts-002.bin", -150), ["experts-002.bin"]),
    ("banks exchanged", swap_banks, ["experts-001.bin"]),
    ("tokenizer missing", removed("tiktoken.model"), ["tiktoken.model"]),
    ("tokenizer flipped", flipped("tiktoken.model", 100), ["tiktoken.model"]),
    ("tokenizer empty", replaced("tiktoken.model", b""), ["tiktoken.model"]),
    ("special tokens flipped", flipped("tokenizer_config.json", 30), ["tokenizer_config.json"]),
    ("generation config cut", halved("generation_config.json"), ["generation_config.json"]),
    ("no manifest", removed("manifest.json"), ["manifest.json"]),
    ("unfinished", lambda d: (os.unlink(os.path.join(d, "manifest.json")),
                              write(os.path.join(d, "convert.journal"), b"x\n")), ["not finished"]),
]

# Wrong use: the arguments after `waste`, and the word that the message must hold. MODEL is a good container.
USAGE_CASES = [
    ([], "subcommand"),
    (["nosuch"], "nosuch"),
    (["--nosuch"], "--nosuch"),
    (["convert"], "source"),
    (["convert", "a"], "destination"),
    (["convert", "a", "b", "c"], "c"),
    (["convert", "a", "b", "--trunk"], "--trunk"),
    (["convert", "a", "b", "--trunk", "q9"], "q9"),
    (["convert", "a", "b", "--trunk", "--experts", "q4"], "--trunk"),
    (["convert", "a", "b", "--experts", "mxfp5"], "mxfp5"),
    (["convert", "a", "b", "-j", "0"], "threads"),
    (["convert", "a", "b", "-j", "x"], "x"),
    (["convert", "a", "b", "--trnk", "q4"], "--trnk"),
    (["run"], "model"),
    (["run", "MODEL", "hi", "--temp", ""], "--temp has an empty value"),
    (["run", "MODEL", "hi", "--stop", ""], "--stop has an empty value"),
    (["run", "MODEL", "hi", "-n", "010"], "010"),
    (["run", "MODEL", "hi", "-n", "0x10"], "0x10"),
    (["run", "MODEL", "hi", "--seed", "18446744073709551616"], "too large"),
    (["run", "MODEL", "hi", "--seed", "-1"], "-1"),
    (["run", "MODEL", "--ids", "-n", "3"], "--ids has no value"),
    (["run", "MODEL", "hi", "--temp", "nan"], "--temp"),
    (["verify", "MODEL", "--source", ""], "--source has an empty value"),
    (["run", "MODEL", "hi", "-n"], "-n"),
    (["run", "MODEL", "-n", "hi"], "hi"),
    (["run", "MODEL", "hi", "-n", "-3"], "-3"),
    (["run", "MODEL", "hi", "-n", "3x"], "3x"),
    (["run", "MODEL", "hi", "there"], "there"),
    (["run", "MODEL", "hi", "--temp", "--seed", "1"], "--temp"),
    (["run", "MODEL", "hi", "--temp", "warm"], "warm"),
    (["run", "MODEL", "--system", "--chat", "hi"], "--system"),
    (["run", "MODEL", "hi", "--stop", "-n"], "--stop"),
    (["run", "MODEL", "hi", "--bogus"], "--bogus"),
    (["run", "MODEL", "hi", "--compute", "fp3"], "fp3"),
    (["run", "MODEL", "hi", "--threads", "0"], "threads"),
    (["run", "MODEL", "hi", "--ctx", "0"], "ctx"),
    (["plan", "MODEL", "--ctx"], "--ctx"),
    (["plan", "MODEL", "--ctx", "0"], "0"),
    (["info"], "model"),
    (["info", "MODEL", "--tensor"], "--tensor"),
    (["verify", "MODEL", "--source"], "--source"),
    (["tokenize"], "model"),
    (["eval", "MODEL", "hi", "--top", "0"], "top"),
]


class BadInputTest(CommandTest):
    """Makes a good release and its container once; each case damages a copy."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        maker = cls()
        maker.setUp()
        cls.addClassCleanup(maker.doCleanups)
        cls.release = maker.path("release")
        cls.container = maker.path("container.waste")
        make_checkpoint.write_checkpoint(cls.release, make_checkpoint.k3_config(vocab_size=260), shards=2)
        cls.write_tokenizer(cls.release)
        maker.convert(cls.release, cls.container)
        cls.ids = maker.path("ids")
        write(cls.ids, b"1,2,3")
        cls.available = maker.commands()

    @staticmethod
    def write_tokenizer(directory):
        tokens = [bytes([b]) for b in range(256)] + [b"ab", b"cd"]
        lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
        write(os.path.join(directory, "tiktoken.model"), "".join(lines).encode())
        specials = {"258": {"content": "[BOS]", "special": True}, "259": {"content": "[EOS]", "special": True}}
        for name, content in (("tokenizer_config.json", {"added_tokens_decoder": specials}),
                              ("generation_config.json", {"eos_token_id": 259})):
            write(os.path.join(directory, name), json.dumps(content).encode())

    def damaged(self, base, damage):
        directory = self.path("damaged")
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(base, directory)
        damage(directory)
        return directory

    def container_commands(self, directory):
        every = [["info", directory], ["plan", directory], ["verify", "-q", directory],
                 ["run", "-q", directory, "--ids", self.ids, "-n", "1"],
                 ["eval", "-q", directory, "--ids", self.ids], ["tokenize", directory, "abc"],
                 ["detokenize", directory, "1,2"]]
        return [arguments for arguments in every if arguments[0] in self.available]


class Releases(BadInputTest):
    def test_the_good_one_converts(self):
        self.convert(self.release, self.path("good.waste"))

    def test_damaged_releases_are_refused_before_anything_is_written(self):
        for name, damage, words in RELEASE_CASES:
            with self.subTest(name):
                self.refuse_convert(self.damaged(self.release, damage), *words)

    def test_plan_refuses_damaged_configs_too(self):
        for name, damage, words in RELEASE_CASES:
            if name.startswith("config") and words[0] == "config.json" and name != "config missing":
                with self.subTest(name):
                    self.refuse(("plan", os.path.join(self.damaged(self.release, damage), "config.json")), *words)

    def test_damaged_weights_stop_a_conversion(self):
        for name, damage, words in WEIGHT_CASES:
            with self.subTest(name):
                destination = self.path("out.waste")
                self.refuse(("convert", "-q", self.damaged(self.release, damage), destination), *words)
                self.assertNotIn("manifest.json", os.listdir(destination))
                shutil.rmtree(destination)

    def test_flipped_bits_are_refused_or_harmless(self):
        flips = random.Random(7)
        for name, first_bytes in (("config.json", None), (INDEX_NAME, None), (FIRST, 4000), (SECOND, 4000),
                                  ("tiktoken.model", None), ("tokenizer_config.json", None)):
            size = first_bytes or os.path.getsize(os.path.join(self.release, name))
            for _ in range(12):
                offset, mask = flips.randrange(size), 1 << flips.randrange(8)
                source = self.damaged(self.release, flipped(name, offset, mask))
                destination = self.path("flipped.waste")
                with self.subTest(f"{name} byte {offset} mask {mask}"):
                    code, _, error = self.run_command("convert", "-q", source, destination)
                    self.expect_orderly(code, error)
                shutil.rmtree(destination, ignore_errors=True)

    def expect_orderly(self, code, error):
        self.assertIn(code, (0, 1), error)
        if code == 1:
            self.assertEqual(error.count("\n"), 1, error)
            self.assertTrue(error.startswith("waste: "), error)

    def test_what_is_no_release_is_refused(self):
        empty = self.path("empty")
        os.makedirs(empty)
        self.refuse_convert(self.path("nowhere"), self.path("nowhere"))
        self.refuse_convert(empty, empty, "config.json")
        self.refuse_convert(self.ids, self.ids)
        self.refuse_convert(self.container, self.container)
        self.refuse_convert("", "source is empty", code=2)
        self.refuse_convert(self.path("new\nline"), "new\\x0aline")


class Containers(BadInputTest):
    def test_the_good_one_works(self):
        for arguments in self.container_commands(self.container):
            self.succeed(*arguments)

    def test_damaged_containers_are_refused_by_every_command(self):
        for name, damage, words in CONTAINER_CASES:
            directory = self.damaged(self.container, damage)
            for arguments in self.container_commands(directory):
                with self.subTest(f"{name}: {arguments[0]}"):
                    wanted = [directory] if name == "no manifest" else words
                    self.refuse(arguments, *wanted)

    def test_converting_onto_a_damaged_container_changes_nothing(self):
        for name, damage, _ in CONTAINER_CASES:
            directory = self.damaged(self.container, damage)
            if not os.path.isfile(os.path.join(directory, "manifest.json")):
                continue
            before = command_support.identities(directory)
            with self.subTest(name):
                self.refuse(("convert", "-q", self.release, directory), directory)
                self.assertEqual(command_support.identities(directory), before)

    def test_verify_finds_every_flipped_bit_of_the_weights(self):
        flips = random.Random(11)
        for name, tail in (("trunk.bin", 0), ("experts-001.bin", 400), ("experts-003.bin", 400)):
            size = os.path.getsize(os.path.join(self.container, name)) - tail
            for _ in range(8):
                offset, mask = flips.randrange(size), 1 << flips.randrange(8)
                directory = self.damaged(self.container, flipped(name, offset, mask))
                with self.subTest(f"{name} byte {offset}"):
                    code, out, error = self.run_command("verify", "-q", directory)
                    self.assertEqual(code, 1, out + error)
                    self.assertIn("layer " + str(int(name[8:11])) if tail else "t", out + error)

    def test_a_damaged_expert_never_becomes_an_answer(self):
        def every_record(directory):
            for layer in (1, 2, 3):
                path = os.path.join(directory, f"experts-00{layer}.bin")
                content = bytearray(content_of(path))
                for offset in range(0, len(content) - 400, 512):
                    content[offset] ^= 1
                write(path, bytes(content))
        directory = self.damaged(self.container, every_record)
        self.refuse(("run", "-q", directory, "--ids", self.ids, "-n", "1"), "experts-001.bin", "expert")

    def test_flipped_bits_of_the_manifest_are_refused(self):
        flips = random.Random(13)
        size = os.path.getsize(os.path.join(self.container, "manifest.json"))
        for _ in range(60):
            offset, mask = flips.randrange(size), 1 << flips.randrange(8)
            directory = self.damaged(self.container, flipped("manifest.json", offset, mask))
            with self.subTest(f"byte {offset} mask {mask}"):
                code, out, error = self.run_command("verify", "-q", directory)
                self.assertIn(code, (0, 1), error)
                self.assertLessEqual(error.count("\n"), 1, error)
                self.assertEqual(code == 1, bool(out + error) and "every checksum matches" not in out, out + error)

    def test_what_is_no_container_is_refused(self):
        nowhere = self.path("nowhere")
        for arguments in self.container_commands(nowhere) + self.container_commands(self.ids):
            if arguments[0] == "plan" and self.ids in arguments:
                continue  # takes a config.json
            with self.subTest(arguments):
                self.refuse(arguments, next(a for a in arguments[1:] if a != "-q"))
        for arguments in self.container_commands(self.release):
            if arguments[0] not in ("plan", "tokenize", "detokenize"):  # they take a release as well
                with self.subTest(arguments):
                    self.refuse(arguments, self.release, "waste convert")

    def test_bad_ids_are_refused(self):
        for content, word in ((b"", "empty"), (b"1,x", "byte 2"), (b"1,-2", "byte 2"), (b"260", "260"),
                              (b"99999999999", "byte 0"), (b"\xff\xfe", "byte 0"), (b"1;2", "byte 1")):
            path = self.path("bad-ids")
            write(path, content)
            for command in ("run", "eval"):
                with self.subTest(f"{command} {content}"):
                    self.refuse((command, "-q", self.container, "--ids", path), word)

    def test_prompts_that_are_no_text_are_refused(self):
        path = self.path("prompt")
        write(path, b"abc\xff")
        for command in ("run", "eval"):
            self.refuse((command, "-q", self.container, "--file", path), "UTF-8")
            self.refuse((command, "-q", self.container, "--file", self.path("nowhere")), "nowhere")
            self.refuse((command, "-q", self.container, "--file", self.directory), self.directory)


class Usage(BadInputTest):
    def test_wrong_use_exits_with_2_and_names_the_word(self):
        for arguments, word in USAGE_CASES:
            arguments = [self.container if a == "MODEL" else a for a in arguments]
            if arguments and not arguments[0].startswith("-") and arguments[0] != "nosuch":
                if arguments[0] not in self.available:
                    continue
            with self.subTest(arguments):
                self.refuse(arguments, word, code=2)
        self.assertFalse(os.path.exists("b"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_lost_output_is_no_success(self):
        for arguments in (["run", "-q", self.container, "ab", "-n", "2", "--temp", "0"], ["info", self.container], ["--help"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                ended = subprocess.run([self.binary, *arguments], stdout=full, stderr=subprocess.PIPE)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(b"waste: stdout: cannot be written", ended.stderr)

    def test_a_prompt_past_the_context_is_refused_before_it_is_read(self):
        self.refuse(["run", "-q", self.container, "a b c d e f g", "--ctx", "3"], "the context is 3")

    def test_options_may_stand_anywhere(self):
        expected, _ = self.succeed("run", "-q", self.container, "ab", "-n", "3", "--temp", "0")
        for arguments in (["-n", "3", "--temp", "0", self.container, "ab"],
                          [self.container, "-n", "3", "ab", "--temp", "0"],
                          [self.container, "-n3", "--temp=0", "ab"]):
            out, _ = self.succeed("run", "-q", *arguments)
            self.assertEqual(out, expected, arguments)

    def test_unknown_tiers_are_refused(self):
        command = ("run", "-q", self.container, "ab", "-n", "1")
        self.refuse((*command, "--tier", "sse9"), "--tier", "sse9", code=2)
        self.refuse(command, "WASTE_TIER", "sse9", code=2, env={"WASTE_TIER": "sse9"})
        self.succeed(*command, "--tier", "scalar")

    def test_unknown_settings_are_warned_about(self):
        for command in self.container_commands(self.container):
            _, error = self.succeed(*command, env={"WASTE_THREADS": "3", "WASTE_TIER": "scalar"})
            warnings = [line for line in error.splitlines() if line.startswith("waste: ")]
            self.assertEqual(len(warnings), 1, error)
            self.assertIn("WASTE_THREADS", warnings[0])

    def test_help_is_no_error(self):
        for command in [[], *([name] for name in sorted(self.available))]:
            out, error = self.succeed(*command, "--help")
            self.assertIn("Usage", out)
            self.assertEqual(error, "")
        out, _ = self.succeed("--version")
        self.assertTrue(out.startswith("waste "))


if __name__ == "__main__":
    command_support.main("__main__")
