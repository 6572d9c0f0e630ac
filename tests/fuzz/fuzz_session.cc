// A session file. The mutator reseals it, so that what lies behind the checksums is reached.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/session_file.h"
#include "tests/support/reseal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const int descriptor = memfd_create("session", 0);
    if (descriptor < 0 || write(descriptor, data, size) != static_cast<ssize_t>(size)) abort();
    const auto saved = waste::engine::SavedSession::open("/proc/self/fd/" + std::to_string(descriptor));
    if (saved) {
        const auto& history = saved->history();
        const auto position = static_cast<size_t>(saved->position());
        if (history.tokens.size() != position || history.chunked.size() != position / 64) abort();
        for (const auto& turn : history.turns) {
            if (turn.begin > saved->position()) abort();
        }
        static_cast<void>(saved->verify());
    }
    close(descriptor);
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int) {
    size = LLVMFuzzerMutate(data, size, max_size);
    std::string bytes(reinterpret_cast<const char*>(data), size);
    waste::test::reseal(bytes);
    std::copy(bytes.begin(), bytes.end(), data);
    return size;
}
