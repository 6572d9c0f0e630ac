// A lack of memory comes out of the C interface as a code, whichever allocation it hits, and what is left works on.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>

#include "tests/api/api_support.h"
#include "tests/support/converted.h"
#include "tests/support/temp_dir.h"

namespace {
/// Calls of operator new on this thread for `large` bytes or more that still succeed; below zero: all. The library's go
/// through it too.
thread_local int64_t allowed = -1;
thread_local size_t large = 0;
}  // namespace

// Not inlined, or the compiler sees memory of one that is freed by the other.
[[gnu::noinline]] void* operator new(size_t bytes) {
    if (allowed >= 0 && bytes >= large && allowed-- == 0) {
        allowed = 0;  // and all that follow
        throw std::bad_alloc();
    }
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace waste::test {
namespace {

using Call = std::function<waste_status()>;

/// JSON values allocate a little as they are destroyed, where nothing can be caught: where they are at work only
/// allocations of this size fail.
constexpr size_t kLarge = 16 << 10;

/// Makes a call's allocations of `least` bytes or more fail from the first on, from the second on, ... until it gets
/// through. Later ones are further apart. Returns how often it failed.
int failures(size_t least, const Call& call, const Call& prepare) {
    int failed = 0;
    for (int64_t count = 0;; count += 1 + count / 16) {
        need(prepare());
        large = least;
        allowed = count;
        const waste_status status = call();
        const bool enough = allowed > 0;
        allowed = -1;
        if (status == WASTE_OK && enough) return failed;
        if (status == WASTE_OK) continue;  // what failed was not needed
        failed++;
        EXPECT_EQ(status, WASTE_OUT_OF_MEMORY) << "after " << count << ": " << waste_last_error();
        EXPECT_STRNE(waste_last_error(), "");
        if (status != WASTE_OUT_OF_MEMORY) return failed;
    }
}

int failures(size_t least, const Call& call) {
    return failures(least, call, [] { return WASTE_OK; });
}

class ApiMemory : public ::testing::Test {
  protected:
    TempDir directory_;
    Converted converted_{defaults("demo-model")};
    ModelPointer model_ = open_model(converted_.directory());
    SessionPointer session_ = create_session(model_.get());
    const std::vector<int32_t> ids_ = some_ids(70, 3);
};

TEST_F(ApiMemory, ModelsAndPlans) {
    const char* path = converted_.directory().c_str();
    auto options = small_options();
    waste_model* model = nullptr;
    const auto open = [&] { return waste_model_open(path, &options, &model); };
    EXPECT_GT(failures(kLarge, open), 5);
    waste_model_close(model);
    options.budget_bytes = least_budget(path);
    EXPECT_GT(failures(kLarge, open), 5);
    waste_model_close(model);
    auto plan = sized<waste_plan>();
    EXPECT_GT(failures(kLarge, [&] { return waste_plan_path(path, &options, &plan); }), 0);
}

TEST_F(ApiMemory, Text) {
    const std::string text = "Once upon a time, there was a little";
    std::vector<int32_t> ids(1000);
    std::vector<char> back(1000);
    size_t count = 0, bytes = 0;
    const auto tokenize = [&] {
        return waste_tokenize(model_.get(), text.data(), text.size(), ids.data(), ids.size(), &count);
    };
    EXPECT_GT(failures(0, tokenize), 0);
    const auto detokenize = [&] {
        return waste_detokenize(model_.get(), ids.data(), count, 1, back.data(), back.size(), &bytes);
    };
    EXPECT_GT(failures(0, detokenize), 0);
    EXPECT_EQ(std::string(back.data(), bytes), text);
    auto message = sized<waste_message>();
    message.role = "user";
    message.content = text.data();
    message.content_bytes = text.size();
    const auto chat = [&] {
        return waste_tokenize_chat(model_.get(), &message, 1, 0, ids.data(), ids.size(), &count);
    };
    EXPECT_GT(failures(0, chat), 0);
}

TEST_F(ApiMemory, Sessions) {
    feed(session_.get(), ids_);
    const auto expected = logits_of(session_.get());
    waste_session* made = nullptr;
    EXPECT_GT(failures(0, [&] { return waste_session_create(model_.get(), nullptr, &made); }), 5);
    const SessionPointer session(made);
    const auto clear = [&] { return waste_session_clear(made); };
    const auto read = [&] { return waste_session_feed(made, ids_.data(), ids_.size(), nullptr, nullptr); };
    failures(0, read, clear);  // none of its allocations may be needed
    EXPECT_EQ(logits_of(made), expected);
    const std::string path = directory_.file("a.session");
    EXPECT_GT(failures(kLarge, [&] { return waste_session_save(made, path.c_str(), nullptr); }), 0);
    const auto load = [&] { return waste_session_load(made, path.c_str()); };
    EXPECT_GT(failures(kLarge, load, clear), 0);
    EXPECT_EQ(logits_of(made), expected);
    const auto rewind = [&] { return waste_session_rewind(made, 40, nullptr, nullptr, nullptr); };
    EXPECT_GT(failures(0, rewind, load), 0);
    EXPECT_EQ(tokens_of(made).size(), 40U);
    auto options = sized<waste_generate_options>();
    options.max_tokens = 3;
    const auto generate = [&] { return waste_session_generate(made, &options, nullptr, nullptr, nullptr); };
    EXPECT_GT(failures(0, generate, load), 0);
}

/// Address space in use by this process.
uint64_t address_space() {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
}

TEST_F(ApiMemory, AContextThatTheSystemHasNoMemoryFor) {
    auto options = small_options();
    options.context_length = 1 << 20;
    const auto model = open_model(converted_.directory(), options);
    const auto try_it = [&] {
        const rlimit limit{address_space() + (64 << 20), RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
        waste_session* session = nullptr;
        const waste_status status = waste_session_create(model.get(), nullptr, &session);
        const bool refused = status == WASTE_CAPACITY || status == WASTE_OUT_OF_MEMORY;
        auto smaller = sized<waste_session_options>();
        smaller.context_length = 64;
        smaller.threads = 1;
        const bool recovered = waste_session_create(model.get(), &smaller, &session) == WASTE_OK;
        std::_Exit(refused && recovered ? 0 : 1);
    };
    EXPECT_EXIT(try_it(), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace waste::test
