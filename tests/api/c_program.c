/* The interface as C11 sees it: every function once, on a model with a tokenizer. Says nothing unless something is wrong.
 *
 *     c_program MODEL DIRECTORY
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <waste.h>

/* Programs that were built against these sizes go on working: a struct only ever grows at its end. */
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(waste_model_options) == 104, "waste_model_options");
_Static_assert(offsetof(waste_model_options, mirrors) == 96, "waste_model_options");
_Static_assert(offsetof(waste_model_options, checkpoint_interval) == 64, "waste_model_options");
_Static_assert(sizeof(waste_model_info) == 136, "waste_model_info");
_Static_assert(sizeof(waste_plan) == 200, "waste_plan");
_Static_assert(sizeof(waste_stats) == 128, "waste_stats");
_Static_assert(sizeof(waste_message) == 32, "waste_message");
_Static_assert(sizeof(waste_session_options) == 24, "waste_session_options");
_Static_assert(sizeof(waste_sampler) == 40, "waste_sampler");
_Static_assert(sizeof(waste_token) == 32, "waste_token");
_Static_assert(sizeof(waste_generate_options) == 40, "waste_generate_options");
_Static_assert(sizeof(waste_generation) == 24, "waste_generation");
_Static_assert(sizeof(waste_save_options) == 16, "waste_save_options");
#endif

enum { ROOM = 256, GENERATED = 12 };

static void check(int good, const char* what, int line) {
    if (good) return;
    fprintf(stderr, "c_program.c:%d: %s; last error: %s\n", line, what, waste_last_error());
    exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define SUCCEED(call) check((call) == WASTE_OK, #call, __LINE__)

struct heard {
    int32_t ids[ROOM];
    size_t count;
    char text[4096];
    size_t text_bytes;
    size_t stop_after; /* 0: never */
};

static int hear(const waste_token* token, void* user) {
    struct heard* heard = user;
    CHECK(heard->count < ROOM && heard->text_bytes + token->text_bytes <= sizeof heard->text);
    heard->ids[heard->count++] = token->id;
    memcpy(heard->text + heard->text_bytes, token->text, token->text_bytes);
    heard->text_bytes += token->text_bytes;
    return heard->count == heard->stop_after;
}

static int count_blocks(int64_t position, void* user) {
    CHECK(position > 0);
    ++*(int*)user;
    return 0;
}

static void look_at_model(const waste_model* model, const waste_model_options* options, const char* path) {
    waste_model_info info = {.struct_size = sizeof info};
    SUCCEED(waste_model_get_info(model, &info));
    CHECK(strcmp(info.family, "kimi_k3") == 0 && strlen(info.fingerprint) == 32);
    CHECK(info.has_tokenizer == 1 && info.vocab_size > 0 && info.context_length == 512 && info.threads == 2);
    CHECK(info.stop_count > 0 && info.stop_ids[0] < info.vocab_size && strlen(info.tier) > 0);
    waste_plan held = {.struct_size = sizeof held}, planned = {.struct_size = sizeof planned};
    SUCCEED(waste_model_get_plan(model, &held));
    SUCCEED(waste_plan_path(path, options, &planned));
    CHECK(planned.runs == 1 && planned.floor_bytes == held.floor_bytes &&
          held.least_bytes <= held.total_bytes);
    CHECK(planned.session_bytes == held.kda_state_bytes + held.conv_ring_bytes + held.mla_latent_bytes +
                                       held.checkpoint_bytes + held.activation_bytes);
    waste_stats stats = {.struct_size = sizeof stats};
    SUCCEED(waste_model_get_stats(model, &stats));
}

static size_t read_prompt(const waste_model* model, int32_t* ids) {
    const char text[] = "Once upon a time, there was a little";
    size_t count = 0, bytes = 0;
    CHECK(waste_tokenize(model, text, sizeof text - 1, NULL, 0, &count) == WASTE_CAPACITY && count == 9);
    SUCCEED(waste_tokenize(model, text, sizeof text - 1, ids, ROOM, &count));
    char back[sizeof text];
    SUCCEED(waste_detokenize(model, ids, count, 1, back, sizeof back, &bytes));
    CHECK(bytes == sizeof text - 1 && memcmp(back, text, bytes) == 0);
    return count;
}

static void read_chat(const waste_model* model) {
    int32_t ids[ROOM], special = -1;
    size_t count = 0;
    const waste_message messages[2] = {
        {.struct_size = sizeof(waste_message), .role = "system", .content = "Be brief.", .content_bytes = 9},
        {.struct_size = sizeof(waste_message), .role = "user", .content = "Hello", .content_bytes = 5}};
    SUCCEED(waste_tokenize_chat(model, messages, 2, 0, ids, ROOM, &count));
    SUCCEED(waste_special_token(model, "<|open|>", &special));
    CHECK(count > 2 && ids[0] == special);
    CHECK(waste_special_token(model, "<|nothing|>", &special) == WASTE_NOT_FOUND);
}

static void generate(waste_session* session, size_t stop_after, struct heard* heard) {
    const waste_sampler sampler = {.struct_size = sizeof sampler, .temperature = 1, .seed = 7};
    const waste_generate_options how = {
        .struct_size = sizeof how, .max_tokens = GENERATED, .sampler = &sampler};
    waste_generation done = {.struct_size = sizeof done};
    memset(heard, 0, sizeof *heard);
    heard->stop_after = stop_after;
    const waste_status status = waste_session_generate(session, &how, hear, heard, &done);
    CHECK(status == (stop_after == 0 ? WASTE_OK : WASTE_STOPPED));
    CHECK(done.end == (stop_after == 0 ? WASTE_END_LENGTH : WASTE_END_CALLBACK));
    CHECK(done.tokens == (int64_t)heard->count);
}

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    CHECK(strlen(waste_version()) > 0 && strcmp(waste_status_name(WASTE_CORRUPT), "corrupt") == 0);
    waste_model* model = NULL;
    const waste_model_options options = {
        .struct_size = sizeof options, .context_length = 512, .threads = 2, .checkpoints = 4, .no_learn = 1};
    SUCCEED(waste_model_open(argv[1], &options, &model));
    int32_t ids[ROOM];
    const size_t count = read_prompt(model, ids);
    read_chat(model);

    waste_session* session = NULL;
    SUCCEED(waste_session_create(model, NULL, &session));
    int blocks = 0;
    SUCCEED(waste_session_begin_turn(session, WASTE_ROLE_USER));
    SUCCEED(waste_session_feed(session, ids, count, count_blocks, &blocks));
    CHECK(blocks == 1);
    const float* logits = NULL;
    size_t logit_count = 0;
    SUCCEED(waste_session_logits(session, &logits, &logit_count));
    CHECK(logit_count > 0 && logits[0] == logits[0]);

    SUCCEED(waste_session_begin_turn(session, WASTE_ROLE_ASSISTANT));
    static struct heard first, again;
    generate(session, 0, &first);
    CHECK(first.count == GENERATED && first.text_bytes > 0);
    int64_t position = 0, evaluated = -1;
    SUCCEED(waste_session_rewind(session, (int64_t)count, NULL, NULL, &evaluated));
    CHECK(evaluated == 0); /* there is a checkpoint where the turn began */
    generate(session, 3, &again);
    CHECK(again.count == 3 && memcmp(again.ids, first.ids, 3 * sizeof again.ids[0]) == 0);
    SUCCEED(waste_session_position(session, &position));
    CHECK(position == (int64_t)count + 2); /* the third was chosen and not fed */

    char path[4096];
    snprintf(path, sizeof path, "%s/c_program.session", argv[2]);
    SUCCEED(waste_session_rewind(session, (int64_t)count, NULL, NULL, NULL));
    SUCCEED(waste_session_save(session, path, NULL));
    SUCCEED(waste_session_clear(session));
    SUCCEED(waste_session_load(session, path));
    generate(session, 0, &again);
    CHECK(memcmp(&again, &first, sizeof first) == 0);
    const int32_t* tokens = NULL;
    size_t token_count = 0;
    SUCCEED(waste_session_tokens(session, &tokens, &token_count));
    CHECK(token_count == count + GENERATED && memcmp(tokens, ids, count * sizeof ids[0]) == 0);

    waste_model_close(model); /* the session keeps it */
    SUCCEED(waste_session_feed(session, ids, 1, NULL, NULL));
    waste_session_destroy(session);
    waste_session_destroy(NULL);
    waste_model_close(NULL);
    SUCCEED(waste_model_open(argv[1], &options, &model));
    look_at_model(model, &options, argv[1]);
    waste_model_close(model);
    return 0;
}
