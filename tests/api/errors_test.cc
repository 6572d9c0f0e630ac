// What goes wrong comes out of the C interface as a code and a line of text, and in no other way.
#include <sched.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "tests/api/api_support.h"
#include "tests/support/converted.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

testing::AssertionResult says(const char* word) {
    const std::string text = waste_last_error();
    if (text.find(word) != text.npos && text.find('\n') == text.npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << text << "' does not say '" << word << "' in one line";
}

void flip_byte(const std::string& path, std::streamoff from_end) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-from_end, std::ios::end);
    const int byte = file.get();
    file.seekp(-from_end, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.good());
}

class ApiErrors : public ::testing::Test {
  protected:
    waste_status open(const std::string& path, const waste_model_options& options) {
        waste_model* model = nullptr;
        const waste_status status = waste_model_open(path.c_str(), &options, &model);
        EXPECT_EQ(model != nullptr, status == WASTE_OK) << waste_last_error();
        waste_model_close(model);
        return status;
    }
    waste_status open(const waste_model_options& options) { return open(converted_.directory(), options); }

    TempDir directory_;
    Converted converted_{defaults("tiny-kimi-linear")};
    ModelPointer model_ = open_model(converted_.directory());
    SessionPointer session_ = create_session(model_.get());
    const std::vector<int32_t> ids_ = some_ids(150, 3);
};

TEST_F(ApiErrors, NamesOfCodes) {
    EXPECT_STREQ(waste_status_name(WASTE_OK), "ok");
    EXPECT_STREQ(waste_status_name(WASTE_OUT_OF_MEMORY), "out_of_memory");
    EXPECT_STREQ(waste_status_name(WASTE_INTERNAL), "internal");
    EXPECT_STREQ(waste_status_name(WASTE_INTERNAL + 1), "unknown");
    EXPECT_STREQ(waste_status_name(-1), "unknown");
}

TEST_F(ApiErrors, PathsThatAreNoModel) {
    EXPECT_EQ(open(directory_.file("nothing"), small_options()), WASTE_NOT_FOUND);
    EXPECT_TRUE(says("nothing"));
    auto plan = sized<waste_plan>();
    EXPECT_EQ(waste_plan_path(directory_.file("nothing").c_str(), nullptr, &plan), WASTE_NOT_FOUND);
    auto options = small_options();
    const std::string own = converted_.directory(), nowhere = directory_.file("nowhere");
    const char* const mirrors[] = {own.c_str(), nowhere.c_str(), nullptr};
    options.mirrors = mirrors;
    EXPECT_EQ(open(options), WASTE_NOT_FOUND);
    EXPECT_TRUE(says("nowhere"));
    std::ofstream(converted_.directory() + "/manifest.json") << "{";
    EXPECT_EQ(open(small_options()), WASTE_CORRUPT);
    EXPECT_TRUE(says("manifest.json"));
}

TEST_F(ApiErrors, OptionsThatMakeNoSense) {
    struct Case {
        const char* word;
        void (*change)(waste_model_options&);
    };
    const Case cases[] = {
        {"context_length", [](waste_model_options& o) { o.context_length = -1; }},
        {"context_length", [](waste_model_options& o) { o.context_length = int64_t{1} << 40; }},
        {"block_tokens", [](waste_model_options& o) { o.block_tokens = 65; }},
        {"block_tokens", [](waste_model_options& o) { o.block_tokens = -64; }},
        {"threads", [](waste_model_options& o) { o.threads = -1; }},
        {"threads", [](waste_model_options& o) { o.threads = 1 << 30; }},
        {"compute", [](waste_model_options& o) { o.compute = 2; }},
        {"io", [](waste_model_options& o) { o.io = 4; }},
        {"tier", [](waste_model_options& o) { o.tier = "fastest"; }},
        {"cpus", [](waste_model_options& o) { o.cpus = "0"; }},
        {"checkpoints", [](waste_model_options& o) { o.checkpoints = -1; }},
        {"checkpoint_interval", [](waste_model_options& o) { o.checkpoint_interval = 1; }},
    };
    for (const Case& wrong : cases) {
        auto options = small_options();
        wrong.change(options);
        EXPECT_EQ(open(options), WASTE_INVALID) << wrong.word;
        EXPECT_TRUE(says(wrong.word));
    }
    auto options = small_options();
    options.budget_bytes = 1;
    EXPECT_EQ(open(options), WASTE_CAPACITY);
}

TEST_F(ApiErrors, APlanThatDoesNotFitIsNone) {
    auto options = small_options();
    options.budget_bytes = 1;
    auto plan = sized<waste_plan>();
    ASSERT_EQ(waste_plan_path(converted_.directory().c_str(), &options, &plan), WASTE_OK);
    EXPECT_EQ(plan.runs, 0);
    EXPECT_EQ(plan.total_bytes, 0U);
    EXPECT_GT(plan.least_bytes, 1U);
    options.budget_bytes = plan.least_bytes;
    ASSERT_EQ(waste_plan_path(converted_.directory().c_str(), &options, &plan), WASTE_OK);
    EXPECT_EQ(plan.runs, 1);
    EXPECT_LE(plan.total_bytes, plan.least_bytes);
}

TEST_F(ApiErrors, StructsOfAnotherAge) {
    auto options = small_options();
    // An older program's, with something else behind it.
    options.struct_size = offsetof(waste_model_options, threads);
    options.threads = -1;
    options.tier = "nonsense";
    EXPECT_EQ(open(options), WASTE_OK) << waste_last_error();
    options.struct_size = 0;
    EXPECT_EQ(open(options), WASTE_INVALID);
    EXPECT_TRUE(says("struct_size"));
    // A newer program's.
    struct {
        waste_model_options known;
        int64_t unknown;
    } newer{small_options(), 0};
    newer.known.struct_size = sizeof newer;
    EXPECT_EQ(open(newer.known), WASTE_OK) << waste_last_error();
    newer.unknown = int64_t{1} << 56;
    EXPECT_EQ(open(newer.known), WASTE_UNSUPPORTED);
    EXPECT_TRUE(says("waste_model_options"));
}

TEST_F(ApiErrors, StructsOfAnotherAgeToBeFilled) {
    auto info = sized<waste_model_info>();
    info.struct_size = offsetof(waste_model_info, layers);
    info.layers = -7;
    ASSERT_EQ(waste_model_get_info(model_.get(), &info), WASTE_OK);
    EXPECT_EQ(info.context_length, 256);
    EXPECT_EQ(info.layers, -7);
    EXPECT_EQ(info.struct_size, offsetof(waste_model_info, layers));
    struct {
        waste_stats known;
        int64_t unknown;
    } newer{{}, -1};
    newer.known.struct_size = sizeof newer;
    ASSERT_EQ(waste_model_get_stats(model_.get(), &newer.known), WASTE_OK);
    EXPECT_EQ(newer.unknown, 0);
    newer.known.struct_size = 4;
    EXPECT_EQ(waste_model_get_stats(model_.get(), &newer.known), WASTE_INVALID);
    auto generation = sized<waste_generation>();
    generation.struct_size = 1;
    EXPECT_EQ(waste_session_generate(session_.get(), nullptr, nullptr, nullptr, &generation), WASTE_INVALID);
}

TEST_F(ApiErrors, Null) {
    waste_model* model = nullptr;
    waste_session* session = nullptr;
    size_t count = 0;
    int64_t position = 0;
    int32_t id = 0;
    const float* logits = nullptr;
    const int32_t* ids = nullptr;
    auto info = sized<waste_model_info>();
    auto plan = sized<waste_plan>();
    auto stats = sized<waste_stats>();
    waste_session* s = session_.get();
    const waste_status calls[] = {
        waste_model_open(nullptr, nullptr, &model),
        waste_model_open(converted_.directory().c_str(), nullptr, nullptr),
        waste_model_get_info(nullptr, &info),
        waste_model_get_info(model_.get(), nullptr),
        waste_plan_path(nullptr, nullptr, &plan),
        waste_plan_path(converted_.directory().c_str(), nullptr, nullptr),
        waste_model_get_plan(nullptr, &plan),
        waste_model_get_plan(model_.get(), nullptr),
        waste_model_get_stats(nullptr, &stats),
        waste_model_get_stats(model_.get(), nullptr),
        waste_tokenize(nullptr, "", 0, nullptr, 0, &count),
        waste_special_token(nullptr, "", &id),
        waste_detokenize(nullptr, nullptr, 0, 0, nullptr, 0, &count),
        waste_tokenize_chat(nullptr, nullptr, 0, 0, nullptr, 0, &count),
        waste_session_create(nullptr, nullptr, &session),
        waste_session_create(model_.get(), nullptr, nullptr),
        waste_session_feed(nullptr, ids_.data(), 1, nullptr, nullptr),
        waste_session_feed(s, nullptr, 1, nullptr, nullptr),
        waste_session_logits(nullptr, &logits, &count),
        waste_session_logits(s, nullptr, &count),
        waste_session_logits(s, &logits, nullptr),
        waste_session_tokens(nullptr, &ids, &count),
        waste_session_tokens(s, nullptr, &count),
        waste_session_position(nullptr, &position),
        waste_session_position(s, nullptr),
        waste_session_generate(nullptr, nullptr, nullptr, nullptr, nullptr),
        waste_session_begin_turn(nullptr, 0),
        waste_session_rewind(nullptr, 0, nullptr, nullptr, nullptr),
        waste_session_clear(nullptr),
        waste_session_save(nullptr, "", nullptr),
        waste_session_save(s, nullptr, nullptr),
        waste_session_load(nullptr, ""),
        waste_session_load(s, nullptr),
    };
    for (size_t i = 0; i < std::size(calls); i++) EXPECT_EQ(calls[i], WASTE_INVALID) << "call " << i;
    waste_model_close(nullptr);
    waste_session_destroy(nullptr);
}

TEST_F(ApiErrors, ModelsWithoutATokenizer) {
    size_t count = 0;
    EXPECT_EQ(waste_tokenize(model_.get(), "a", 1, nullptr, 0, &count), WASTE_NOT_FOUND);
    EXPECT_TRUE(says("tokenizer"));
    EXPECT_EQ(waste_detokenize(model_.get(), nullptr, 0, 0, nullptr, 0, &count), WASTE_NOT_FOUND);
}

TEST_F(ApiErrors, SessionsThatCannotBe) {
    waste_session* session = nullptr;
    auto options = sized<waste_session_options>();
    options.context_length = 257;
    EXPECT_EQ(waste_session_create(model_.get(), &options, &session), WASTE_INVALID);
    EXPECT_TRUE(says("256"));
    options.context_length = 0;
    options.threads = 3;
    EXPECT_EQ(waste_session_create(model_.get(), &options, &session), WASTE_INVALID);
    EXPECT_TRUE(says("threads"));
    EXPECT_EQ(session, nullptr);
}

TEST_F(ApiErrors, RefusedTokensChangeNothing) {
    const int32_t beyond = 1 << 30;
    EXPECT_EQ(waste_session_feed(session_.get(), &beyond, 1, nullptr, nullptr), WASTE_INVALID);
    const auto many = some_ids(257, 1);
    EXPECT_EQ(waste_session_feed(session_.get(), many.data(), many.size(), nullptr, nullptr), WASTE_CAPACITY);
    EXPECT_EQ(waste_session_generate(session_.get(), nullptr, nullptr, nullptr, nullptr), WASTE_INVALID);
    EXPECT_EQ(waste_session_rewind(session_.get(), 1, nullptr, nullptr, nullptr), WASTE_INVALID);
    EXPECT_EQ(waste_session_begin_turn(session_.get(), 4), WASTE_INVALID);
    feed(session_.get(), ids_);
    EXPECT_EQ(tokens_of(session_.get()), ids_);
    auto sampler = sized<waste_sampler>();
    sampler.top_p = 2;
    auto options = sized<waste_generate_options>();
    options.sampler = &sampler;
    EXPECT_EQ(waste_session_generate(session_.get(), &options, nullptr, nullptr, nullptr), WASTE_INVALID);
    EXPECT_TRUE(says("waste_sampler.top_p"));
}

TEST_F(ApiErrors, ACallbackStops) {
    const auto stop = [](int64_t, void*) { return 1; };
    EXPECT_EQ(waste_session_feed(session_.get(), ids_.data(), ids_.size(), stop, nullptr), WASTE_STOPPED);
    EXPECT_EQ(tokens_of(session_.get()).size(), 64U);
    EXPECT_TRUE(logits_of(session_.get()).empty());
    feed(session_.get(), {ids_.begin() + 64, ids_.end()});
    auto done = sized<waste_generation>();
    const auto stop_at_third = [](const waste_token*, void* user) {
        return ++*static_cast<int*>(user) == 3 ? 1 : 0;
    };
    int seen = 0;
    EXPECT_EQ(waste_session_generate(session_.get(), nullptr, stop_at_third, &seen, &done), WASTE_STOPPED);
    EXPECT_EQ(done.tokens, 3);
    EXPECT_EQ(done.end, WASTE_END_CALLBACK);
    EXPECT_EQ(tokens_of(session_.get()).size(), ids_.size() + 2);
    EXPECT_EQ(waste_session_rewind(session_.get(), 140, stop, nullptr, nullptr), WASTE_STOPPED);
    EXPECT_EQ(tokens_of(session_.get()).size(), 64U);
    feed(session_.get(), ids_);
}

TEST_F(ApiErrors, ACallbackCannotCallItsOwnSession) {
    struct Answers {
        waste_session* session;
        waste_status fed, cleared, looked;
        int64_t position;
    } answers{session_.get(), WASTE_OK, WASTE_OK, WASTE_INTERNAL, 0};
    const auto callback = [](int64_t, void* user) {
        auto& a = *static_cast<Answers*>(user);
        const int32_t id = 1;
        a.fed = waste_session_feed(a.session, &id, 1, nullptr, nullptr);
        a.cleared = waste_session_clear(a.session);
        a.looked = waste_session_position(a.session, &a.position);
        return 0;
    };
    ASSERT_EQ(waste_session_feed(session_.get(), ids_.data(), 10, callback, &answers), WASTE_OK);
    EXPECT_EQ(answers.fed, WASTE_INVALID);
    EXPECT_EQ(answers.cleared, WASTE_INVALID);
    EXPECT_EQ(answers.looked, WASTE_OK);
    EXPECT_EQ(answers.position, 10);
}

TEST_F(ApiErrors, DamagedAndForeignSessionFiles) {
    const std::string path = directory_.file("a.session");
    feed(session_.get(), ids_);
    need(waste_session_save(session_.get(), path.c_str(), nullptr));
    const auto other = create_session(model_.get());
    feed(other.get(), some_ids(5, 1));
    EXPECT_EQ(waste_session_save(other.get(), path.c_str(), nullptr), WASTE_INVALID);
    EXPECT_TRUE(says("another session"));
    flip_byte(path, 5000);
    EXPECT_EQ(waste_session_load(other.get(), path.c_str()), WASTE_CORRUPT);
    EXPECT_TRUE(says("a.session"));
    EXPECT_EQ(waste_session_clear(other.get()), WASTE_OK);
    feed(other.get(), ids_);
    EXPECT_EQ(logits_of(other.get()), logits_of(session_.get()));
    EXPECT_EQ(waste_session_load(other.get(), directory_.file("none").c_str()), WASTE_NOT_FOUND);
    const Converted foreign(defaults("odd-k3"));
    const auto foreign_model = open_model(foreign.directory());
    const auto foreign_session = create_session(foreign_model.get());
    feed(foreign_session.get(), some_ids(5, 1));
    const std::string foreign_path = directory_.file("b.session");
    need(waste_session_save(foreign_session.get(), foreign_path.c_str(), nullptr));
    EXPECT_NE(waste_session_load(other.get(), foreign_path.c_str()), WASTE_OK);
}

TEST_F(ApiErrors, TextBelongsToItsThread) {
    EXPECT_EQ(waste_special_token(nullptr, "", nullptr), WASTE_INVALID);
    const std::string mine = waste_last_error();
    std::string theirs = "none";
    std::thread([&] { theirs = waste_last_error(); }).join();
    EXPECT_EQ(theirs, "");
    EXPECT_EQ(waste_last_error(), mine);
}

TEST_F(ApiErrors, LongTextIsCutBetweenCharacters) {
    std::string path = "/";
    while (path.size() < 3000) path += "ä";
    EXPECT_NE(open(path, small_options()), WASTE_OK);
    const std::string text = waste_last_error();
    EXPECT_GE(text.size(), 1022U);
    EXPECT_LE(text.size(), 1023U);
    EXPECT_EQ(text.substr(text.size() - 2), "ä");
}

TEST_F(ApiErrors, NothingIsPrinted) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    feed(session_.get(), ids_);
    generate(session_.get(), 4, 1);
    auto options = small_options();
    options.budget_bytes = least_budget(converted_.directory());
    options.lock_trunk = 1;
    (void)open(options);
    (void)open(directory_.file("nothing"), small_options());
    (void)waste_session_load(session_.get(), directory_.file("none").c_str());
    session_.reset();
    model_.reset();
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(ApiErrors, TheCallersThreadStaysWhereItWas) {
    cpu_set_t before, during, after;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    auto options = small_options();
    options.threads = 0;
    options.cpus = "0";
    const auto model = open_model(converted_.directory(), options);
    auto session = create_session(model.get());
    ASSERT_EQ(sched_getaffinity(0, sizeof during, &during), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &during));
    session.reset();
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace waste::test
