/* The engine for programs in other languages: C11, and C++ through `extern "C"`. docs/embedding.md has examples.
 *
 * Calls      Every function that can fail returns a waste_status; what it gives comes back through its last parameters,
 *            which are left alone when it fails, but for counts where said. waste_last_error() says in words what went
 *            wrong. Nothing is printed, no exception comes out, and a lack of memory is a status like any other. Two
 *            things cannot be caught and end the process: a mapped model file that is cut while in use, or a failing
 *            drive (SIGBUS), and memory so short that blocks of a few bytes are not to be had.
 * Structs    Begin with their size: set struct_size to sizeof the struct and everything else to zero. Zero asks for the
 *            default. A program built with an older, smaller struct goes on working; one that asks for more than this
 *            library knows (a larger struct whose unknown part is not zero) is refused with WASTE_UNSUPPORTED. Of a
 *            struct to be filled, what the library does not know is set to zero.
 * Pointers   An object must be given where no default is named; null is WASTE_INVALID. Strings are UTF-8; those without
 *            a length end in NUL. Memory that the library hands out stays its own and lives as long as is said.
 *            The caller frees nothing but models and sessions, by their own functions.
 * Threads    A model may be used by any number of threads at a time, a session by one. Sessions of one model do not
 *            touch each other. A call that comes while another one is at work on the session, be it from a callback or
 *            from another thread, is refused with WASTE_INVALID; only waste_session_logits(), _tokens() and
 *            _position() may be called from that session's callbacks.
 * Callbacks  Run on the calling thread. Returning nonzero stops the function, which then returns WASTE_STOPPED: what
 *            was done by then stays and the session can be used on. A callback must return: no longjmp, no exception.
 */
#ifndef WASTE_H
#define WASTE_H

#include <stddef.h>
#include <stdint.h>

/* The C names are the interface's own, not those of the house. */
/* NOLINTBEGIN(readability-identifier-naming,modernize-use-using,modernize-redundant-void-arg) */

#if defined(__GNUC__)
#define WASTE_API __attribute__((visibility("default")))
#else
#define WASTE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

typedef enum waste_status {
    WASTE_OK = 0,
    WASTE_NOT_FOUND = 1,     /* a file, tensor or key that should be there is not */
    WASTE_IO = 2,            /* the operating system refused */
    WASTE_CORRUPT = 3,       /* bytes contradict themselves or their checksum */
    WASTE_UNSUPPORTED = 4,   /* well-formed, but not something this library handles */
    WASTE_INVALID = 5,       /* a request that makes no sense */
    WASTE_CAPACITY = 6,      /* memory, drive, context or a buffer of the caller's does not suffice */
    WASTE_STOPPED = 7,       /* a callback asked for it */
    WASTE_OUT_OF_MEMORY = 8, /* an allocation failed where none was expected to */
    WASTE_INTERNAL = 9       /* a mistake of the library */
} waste_status;

/* "ok", "not_found", ...; "unknown" for a number that is none. Lives forever. */
WASTE_API const char* waste_status_name(int32_t status);

/* What went wrong in the calling thread's last call that did not return WASTE_OK: one line, cut at 1,023 bytes, that says
 * where and what to do. Never null; valid until that thread's next failing call. */
WASTE_API const char* waste_last_error(void);

/* Of the library that is loaded, like "0.1.0". Lives forever. */
WASTE_API const char* waste_version(void);

/* ---- Models ---- */

typedef struct waste_model waste_model;

enum { WASTE_COMPUTE_INT8 = 0, WASTE_COMPUTE_F32 = 1 };
enum { WASTE_IO_AUTO = 0, WASTE_IO_URING = 1, WASTE_IO_THREADS = 2, WASTE_IO_BUFFERED = 3 };

/* How a model is held and computed with, as `waste run --help` explains. Zero: as the command line does by default. */
typedef struct waste_model_options {
    size_t struct_size;
    uint64_t budget_bytes;  /* for everything, one session included; 0: as much as is safe on this machine */
    int64_t context_length; /* most positions of a session; 0: 4,096, or the model's limit where it is less */
    int64_t block_tokens;   /* of a prompt computed together, a multiple of 64; 0: 512 */
    int32_t threads;        /* of each session; 0: one a fast physical core */
    int32_t compute;        /* WASTE_COMPUTE_...; f32 is exact and slower */
    const char* tier;       /* instruction set: "scalar", "avx2", ...; null: the fastest */
    const char* cpus;    /* like "0-3,8": a compute thread bound to each, in place of threads; null: chosen */
    int32_t checkpoints; /* states to go back to that a session keeps, in memory */
    int32_t io;          /* WASTE_IO_...: how what does not fit is read */
    int64_t checkpoint_interval; /* one also every so many tokens, a multiple of 64; 0: 4,096 */
    int32_t copy_trunk;          /* nonzero: a copy in huge pages, faster where memory is no matter */
    int32_t lock_trunk;          /* nonzero: keep it in memory as far as the system allows */
    int32_t no_verify;           /* nonzero: do not compare checksums of what is read from the drive */
    int32_t no_look_ahead;       /* nonzero: never read experts before the router has chosen them */
    int32_t no_learn; /* nonzero: neither use nor keep, in ~/.cache/waste, which experts were chosen */
    int32_t reserved; /* zero */
    /* Directories on other drives with the model's manifest.json and copies of its large files, all or some, which are
     * read from all drives at once; a null ends the list; null: none. */
    const char* const* mirrors;
} waste_model_options;

/* Opens a container made by `waste convert` and holds it in memory as the plan for one session says; further sessions
 * take waste_plan.session_bytes each beside it. `options` may be null. */
WASTE_API waste_status waste_model_open(const char* path, const waste_model_options* options,
                                        waste_model** model);

/* Null does nothing. Its sessions stay usable: the model goes when the last of them is destroyed. */
WASTE_API void waste_model_close(waste_model* model);

/* Pointers live as long as the model. */
typedef struct waste_model_info {
    size_t struct_size;
    const char* family;      /* "kimi_k3" or "kimi_linear" */
    const char* fingerprint; /* of the container: equal only where every weight is */
    const char* chat_format; /* "xtml", "im", or null where the vocabulary has none */
    const char* warnings;    /* what was tolerated as it was opened, a line each; may be empty */
    const char* tier;        /* instruction set in use */
    int64_t vocab_size;
    int64_t max_context;    /* the model's own limit */
    int64_t context_length; /* that sessions have room for */
    int64_t layers;
    int64_t experts; /* of a layer */
    int64_t experts_per_token;
    uint64_t trunk_bytes;    /* on the drive */
    uint64_t expert_bytes;   /* the same */
    const int32_t* stop_ids; /* tokens that end a reply */
    size_t stop_count;
    int32_t threads;
    int32_t has_tokenizer; /* 0: only token ids have a meaning to it */
} waste_model_info;
WASTE_API waste_status waste_model_get_info(const waste_model* model, waste_model_info* info);

enum { WASTE_FIT_UNKNOWN = 0, WASTE_FIT_COMFORTABLE = 1, WASTE_FIT_TIGHT = 2, WASTE_FIT_NOT = 3 };

/* What a model needs of memory, and how it runs within the budget. docs/plans.md explains the rows. */
typedef struct waste_plan {
    size_t struct_size;
    int64_t context_length;
    /* What must be there: floor_bytes is the sum. */
    uint64_t trunk_bytes;
    uint64_t kda_state_bytes;
    uint64_t conv_ring_bytes;
    uint64_t mla_latent_bytes;
    uint64_t checkpoint_bytes;
    uint64_t activation_bytes;
    uint64_t least_cache_bytes;
    uint64_t program_bytes;
    uint64_t floor_bytes;
    /* What is worth having. */
    uint64_t cache_bytes;
    uint64_t recommended_bytes;
    uint64_t session_bytes; /* of the rows above, what each session takes for itself */
    /* The machine. */
    uint64_t usable_bytes;   /* what it and its control groups allow; 0: not known */
    uint64_t safe_bytes;     /* what a run takes by itself; 0: not known */
    int64_t longest_context; /* whose floor fits; 0: none, or not known */
    int32_t fit;             /* WASTE_FIT_... of the floor into the machine */
    /* The run. */
    int32_t runs;         /* 0: the budget, or the machine, is below least_bytes, and what follows is zero */
    uint64_t least_bytes; /* the smallest budget that works; known whether it runs or not */
    uint64_t budget_bytes;
    uint64_t total_bytes;       /* that it takes of the budget */
    uint64_t cache_slots;       /* experts held in memory of its own; 0: all are mapped */
    uint64_t expert_bytes;      /* memory of those slots; of mapped experts, of all */
    uint64_t drive_trunk_bytes; /* what a token reads of the trunk from the drive */
    int32_t experts_streamed;   /* 0: mapped */
    int32_t trunk_streamed;     /* the same */
} waste_plan;

/* Of a container, a release's folder or its config.json alone, as waste_model_open() would run it with these options,
 * which may be null. A model that does not fit is no error: see `runs`. */
WASTE_API waste_status waste_plan_path(const char* path, const waste_model_options* options,
                                       waste_plan* plan);
/* Of a model as it is held. */
WASTE_API waste_status waste_model_get_plan(const waste_model* model, waste_plan* plan);

/* What the drive did for a model since it was opened. */
typedef struct waste_stats {
    size_t struct_size;
    uint64_t expert_uses;    /* an expert was wanted */
    uint64_t expert_hits;    /* and lay in memory */
    uint64_t expert_joined;  /* and was on its way */
    uint64_t expert_misses;  /* and had to be asked for */
    uint64_t expert_bytes;   /* asked of the drive, look-ahead included */
    uint64_t ahead_reads;    /* read before the router had chosen */
    uint64_t ahead_used;     /* of those, chosen */
    uint64_t expert_wait_ns; /* of threads with nothing else to compute */
    uint64_t trunk_wait_ns;  /* the same, for streamed layers */
    uint64_t drive_reads;
    uint64_t drive_bytes;
    uint64_t drive_busy_ns;
    uint64_t drive_retries;
    int64_t cache_slots;        /* as planned; 0: experts are mapped, and are not counted */
    int64_t usable_cache_slots; /* fewer while the machine is short of memory */
} waste_stats;
WASTE_API waste_status waste_model_get_stats(const waste_model* model, waste_stats* stats);

/* ---- Text ---- */

/* Token ids of text, which may hold NUL and never becomes markup. `ids` has room for `capacity` of them: as many as
 * text_bytes always suffice. `count` is set to how many there are, with WASTE_CAPACITY too, where `ids` is not written
 * to, so capacity 0 with `ids` null asks. */
WASTE_API waste_status waste_tokenize(const waste_model* model, const char* text, size_t text_bytes,
                                      int32_t* ids, size_t capacity, size_t* count);

/* The id of a special token, like "<|im_end|>"; WASTE_NOT_FOUND where there is none of that name. */
WASTE_API waste_status waste_special_token(const waste_model* model, const char* name, int32_t* id);

/* Text of ids, invalid bytes as U+FFFD, special tokens by name if keep_special is nonzero and else not at all. `text` has
 * room for `capacity` bytes and gets no NUL at its end; `text_bytes` is set to how many there are, with WASTE_CAPACITY
 * too, where `text` is not written to. */
WASTE_API waste_status waste_detokenize(const waste_model* model, const int32_t* ids, size_t count,
                                        int32_t keep_special, char* text, size_t capacity,
                                        size_t* text_bytes);

/* A message of a conversation. */
typedef struct waste_message {
    size_t struct_size;
    const char* role; /* "system", "user" or "assistant" */
    const char* content;
    size_t content_bytes;
} waste_message;

/* Token ids of a conversation in the model's own chat format, up to where the assistant's answer begins; with
 * `thinking` it begins with its reasoning, where the format has one. `ids`, `capacity` and `count` as in
 * waste_tokenize(), but that there is no simple bound. All messages have the first one's struct_size. */
WASTE_API waste_status waste_tokenize_chat(const waste_model* model, const waste_message* messages,
                                           size_t message_count, int32_t thinking, int32_t* ids,
                                           size_t capacity, size_t* count);

/* ---- Sessions ---- */

/* A sequence of tokens and all that the model remembers of it. */
typedef struct waste_session waste_session;

typedef struct waste_session_options {
    size_t struct_size;
    int64_t context_length; /* at most the model's; 0: the same */
    int32_t threads;        /* 0: the model's. Results do not depend on it */
    int32_t reserved;       /* zero */
} waste_session_options;

/* An empty sequence. `options` may be null. The calling thread computes too, and stays on the CPUs it was on. */
WASTE_API waste_status waste_session_create(const waste_model* model, const waste_session_options* options,
                                            waste_session** session);
/* Null does nothing. Not from a callback. */
WASTE_API void waste_session_destroy(waste_session* session);

/* After a block of tokens, with the sequence's length; nonzero stops. */
typedef int (*waste_on_block)(int64_t position, void* user);

/* Appends tokens. `on_block` may be null. The same calls give the same bits; the same tokens in other pieces nearly the
 * same. WASTE_INVALID and WASTE_CAPACITY change nothing, WASTE_STOPPED leaves whole blocks; after any other error the
 * session must be rewound or cleared before it goes on. */
WASTE_API waste_status waste_session_feed(waste_session* session, const int32_t* ids, size_t count,
                                          waste_on_block on_block, void* user);

/* Of the last token, vocab_size of them, until the session changes; null and 0 before the first token, and where a feed was
 * stopped. */
WASTE_API waste_status waste_session_logits(const waste_session* session, const float** logits,
                                            size_t* count);
/* All tokens so far, until the session changes. */
WASTE_API waste_status waste_session_tokens(const waste_session* session, const int32_t** ids, size_t* count);
WASTE_API waste_status waste_session_position(const waste_session* session, int64_t* position);

/* How tokens are drawn. All zero: always the likeliest. */
typedef struct waste_sampler {
    size_t struct_size;
    float temperature;     /* 0: the likeliest token */
    float top_p;           /* among the likeliest that hold this share; 0: all */
    float min_p;           /* without those under this share of the likeliest; 0: none */
    float repeat_penalty;  /* on tokens of the last repeat_window; 0: off */
    int32_t top_k;         /* among the k likeliest; 0: all */
    int32_t repeat_window; /* 0: 64 */
    uint64_t seed;         /* with the position it decides what is drawn: going back draws the same again */
} waste_sampler;

/* A token that was generated. The struct and its text live until the callback returns. */
typedef struct waste_token {
    size_t struct_size;
    int32_t id;
    int32_t is_special; /* it is markup; its name is no part of text */
    const char*
        text; /* whole characters that it completes; without NUL at its end; empty without a tokenizer */
    size_t text_bytes;
} waste_token;
/* As a token is chosen, before it is fed; nonzero stops. */
typedef int (*waste_on_token)(const waste_token* token, void* user);

typedef struct waste_generate_options {
    size_t struct_size;
    int64_t max_tokens; /* 0: until the model stops or the context is full */
    const waste_sampler*
        sampler;             /* null: the session's last one; at first, or after a load, the file's, it is
                                     temperature 1, top_p 0.95, seed 0 */
    const int32_t* stop_ids; /* end the generation and are no part of it; null: the model's */
    size_t stop_count;       /* 0 with stop_ids not null: none */
} waste_generate_options;

enum { WASTE_END_STOP_TOKEN = 1, WASTE_END_LENGTH = 2, WASTE_END_CONTEXT = 3, WASTE_END_CALLBACK = 4 };

typedef struct waste_generation {
    size_t struct_size;
    int64_t tokens; /* generated, without the stop token */
    int32_t end;    /* WASTE_END_...; 0 after an error */
    int32_t reserved;
} waste_generation;

/* Continues a sequence that has logits. `options`, `on_token` and `generation` may be null; the last is filled whether or
 * not all went well. A token at which the callback stopped was not fed. */
WASTE_API waste_status waste_session_generate(waste_session* session, const waste_generate_options* options,
                                              waste_on_token on_token, void* user,
                                              waste_generation* generation);

enum { WASTE_ROLE_SYSTEM = 0, WASTE_ROLE_USER = 1, WASTE_ROLE_ASSISTANT = 2, WASTE_ROLE_TOOL = 3 };

/* The next token begins a turn of a conversation: a place that a checkpoint is kept for. */
WASTE_API waste_status waste_session_begin_turn(waste_session* session, int32_t role);

/* Back to the sequence's first `position` tokens, with the bits of a session that never went further. What lies behind
 * the nearest checkpoint is computed again, `evaluated` tokens; it and `on_block` may be null. Stopped, the sequence ends
 * earlier; after WASTE_OUT_OF_MEMORY it may be empty. */
WASTE_API waste_status waste_session_rewind(waste_session* session, int64_t position, waste_on_block on_block,
                                            void* user, int64_t* evaluated);
/* Back to the empty sequence, also after an error. */
WASTE_API waste_status waste_session_clear(waste_session* session);

typedef struct waste_save_options {
    size_t struct_size;
    int32_t replace; /* nonzero: also a file that is not this session's */
    int32_t half;    /* nonzero: states in bf16, which takes half the room and is not exact */
} waste_save_options;

/* To a file, which appears whole or not at all; saved again, only what changed is written. `options` may be null. */
WASTE_API waste_status waste_session_save(waste_session* session, const char* path,
                                          const waste_save_options* options);
/* In place of whatever this session was, a file saved with the same container. A file that cannot be opened or is no session
 * changes nothing; after any other error the session is empty. */
WASTE_API waste_status waste_session_load(waste_session* session, const char* path);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming,modernize-use-using,modernize-redundant-void-arg) */

#endif
