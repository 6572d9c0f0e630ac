#!/usr/bin/env python3
"""The C interface from Python, with nothing but ctypes.

    test_ctypes.py BINARY SOURCE_DIR LIBRARY SNIPPETS [TEST…]
"""
import ctypes
import os
import sys
import unittest
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p

import programs
from programs import PROMPT

OK, NOT_FOUND, INVALID, STOPPED = 0, 1, 5, 7


class Generation(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("tokens", c_int64), ("end", c_int32), ("reserved", c_int32)]


class Token(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("id", c_int32), ("is_special", c_int32),
                ("text", ctypes.POINTER(ctypes.c_char)), ("text_bytes", c_size_t)]


OnToken = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Token), c_void_p)


class PythonTest(programs.ProgramTest):
    snippets = None

    def setUp(self):
        super().setUp()
        # The library asks for it when a model is opened and closed.
        os.environ["XDG_CACHE_HOME"] = self.path("cache")
        self.waste = ctypes.CDLL(self.library)
        self.waste.waste_last_error.restype = c_char_p
        self.waste.waste_status_name.restype = c_char_p
        self.waste.waste_model_close.argtypes = [c_void_p]
        self.waste.waste_session_destroy.argtypes = [c_void_p]

    def open(self):
        model, session = c_void_p(), c_void_p()
        self.call("model_open", self.container.encode(), None, byref(model))
        self.call("session_create", model, None, byref(session))
        self.addCleanup(self.waste.waste_model_close, model)
        self.addCleanup(self.waste.waste_session_destroy, session)
        return model, session

    def call(self, name, *arguments, status=OK):
        found = getattr(self.waste, "waste_" + name)(*arguments)
        self.assertEqual(found, status, self.waste.waste_last_error())

    def tokenize(self, model, text):
        ids, count = (c_int32 * len(text))(), c_size_t()
        self.call("tokenize", model, text, c_size_t(len(text)), ids, c_size_t(len(ids)), byref(count))
        return ids[:count.value]

    def test_story_of_the_document(self):
        snippet = os.path.join(self.snippets, "story.py")
        told = self.run_program(sys.executable, snippet, self.library, self.container, PROMPT)
        self.assertEqual(told.rstrip("\n"), self.story())
        self.assertEqual(self.error, "")

    def test_text_and_back(self):
        model, _ = self.open()
        text = "A dragon\0 naïve 龍 <|open|>".encode()
        ids = self.tokenize(model, text)
        out, _ = self.succeed("tokenize", self.container, "there was a little")
        self.assertEqual(self.tokenize(model, b"there was a little"), [int(i) for i in out.split(",")])
        room, size = ctypes.create_string_buffer(len(text)), c_size_t()
        self.call("detokenize", model, (c_int32 * len(ids))(*ids), c_size_t(len(ids)), 1, room,
                  c_size_t(len(text)), byref(size))
        self.assertEqual(room.raw[:size.value], text)

    def test_a_callback_stops(self):
        model, session = self.open()
        ids = self.tokenize(model, PROMPT.encode())
        self.call("session_feed", session, (c_int32 * len(ids))(*ids), c_size_t(len(ids)), None, None)
        seen = []

        @OnToken
        def stop_at_fifth(token, _user):
            seen.append(token.contents.id)
            return len(seen) == 5

        done = Generation(ctypes.sizeof(Generation))
        self.call("session_generate", session, None, stop_at_fifth, None, byref(done), status=STOPPED)
        self.assertEqual((done.tokens, done.end), (5, 4))
        position = c_int64()
        self.call("session_position", session, byref(position))
        self.assertEqual(position.value, len(ids) + 4)

    def test_errors_are_codes_and_text(self):
        model, session = self.open()
        self.call("model_open", self.path("nothing").encode(), None, byref(c_void_p()), status=NOT_FOUND)
        self.assertIn("nothing", self.waste.waste_last_error().decode())
        self.call("session_load", session, None, status=INVALID)
        self.assertEqual(self.waste.waste_status_name(INVALID), b"invalid")
        self.call("special_token", model, b"<|nothing|>", byref(c_int32()), status=NOT_FOUND)


if __name__ == "__main__":
    (PythonTest.snippets,) = programs.set_up(sys.argv, 1)
    unittest.main(verbosity=2)
