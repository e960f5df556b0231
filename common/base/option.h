/* A row of a table of options, and the table itself; options.h parses it. */
#ifndef LS_BASE_OPTION_H
#define LS_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_INT_LIST_MAX 64

typedef struct ls_int_list {
    int count;
    int values[LS_INT_LIST_MAX];
} ls_int_list;

typedef enum ls_option_kind {
    LS_OPTION_HEADING,  /* not an option: `help` is the title of the rows that follow on the --help page */
    LS_OPTION_FLAG,     /* to.flag: --name makes it true */
    LS_OPTION_SWITCH,   /* to.flag: --name makes it true, --no-name makes it false */
    LS_OPTION_INT,      /* to.number */
    LS_OPTION_INT64,    /* to.big_number */
    LS_OPTION_BYTES,    /* to.nbytes: a whole number, then K, M, G (times 1024, 1024^2, 1024^3) or nothing */
    LS_OPTION_DOUBLE,   /* to.real: finite */
    LS_OPTION_STRING,   /* to.text: points into argv afterwards; may not be empty */
    LS_OPTION_CHOICE,   /* to.number: the index in `choices`; below 0: not chosen */
    LS_OPTION_INT_LIST, /* to.list: "0,1,2", 1 to LS_INT_LIST_MAX numbers, each within the limits */
    LS_OPTION_KIND_COUNT
} ls_option_kind;

/* The allowed range of a number; zero-filled: any. */
typedef struct ls_limits {
    enum { LS_LIMIT_NONE, LS_LIMIT_AT_LEAST, LS_LIMIT_ABOVE, LS_LIMIT_BETWEEN } kind;
    double min, max;
} ls_limits;

#define LS_AT_LEAST(least)                                                                                             \
    { LS_LIMIT_AT_LEAST, (least), 0 }
#define LS_ABOVE(bound)                                                                                                \
    { LS_LIMIT_ABOVE, (bound), 0 }
#define LS_BETWEEN(least, most)                                                                                        \
    { LS_LIMIT_BETWEEN, (least), (most) } /* both ends allowed */

/* How the ranks of a job must agree on an option (ddp_procs/compared.h); zero-filled: same value. */
typedef enum ls_agreement {
    LS_SAME_VALUE,
    LS_ALL_OR_NONE, /* all ranks give the option or none does, since it is collective; values may differ */
    LS_MAY_DIFFER,  /* nothing */
} ls_agreement;

typedef struct ls_option {
    ls_option_kind kind;
    const char *name; /* without dashes */
    char letter;      /* -t for --tee; 0: none. FLAG, and kinds that take a value */
    union {
        bool *flag;
        int *number;
        int64_t *big_number;
        size_t *nbytes;
        double *real;
        const char **text;
        ls_int_list *list;
    } to;                       /* holds the default before the parse, the setting after it */
    const char *argument;       /* what --help calls the value: "N", "FILE"; CHOICE shows its choices instead */
    const char *help;           /* what it does; wrapped by the usage page */
    ls_limits limits;           /* INT, INT64, BYTES, DOUBLE and the numbers of INT_LIST */
    const char *const *choices; /* CHOICE: the names, ended by NULL */
    /* how --help shows a default of 0, NULL, an empty list or no choice: "all devices"; NULL: "0" or "none" */
    const char *empty;
    ls_agreement agreement;
    const char *kept; /* the line of a checkpoint (checkpoint_text.h) that stores it; NULL: none does */
} ls_option;

typedef struct ls_command {
    const char *purpose;      /* a line or two for the usage page, or NULL */
    const ls_option *options; /* `count` rows; names are distinct, "help" and "version" are taken */
    size_t count;
    const char *operands; /* "PROGRAM [ARGUMENT...]": the options end at the first operand. NULL: operands are errors */
    /* prefix of environment variables that override defaults: with "PET_", a non-empty PET_NPROC_PER_NODE is the
     * default of --nproc-per-node; for a FLAG 0 or 1. NULL: none do */
    const char *variables;
} ls_command;

/* The row's present value as text, as the usage page shows it: "on", "3", "64M", "0.1", "adam", "0,1,2". Always
 * terminated; cut if `capacity` is too small. */
void ls_option_text(const ls_option *option, char *text, size_t capacity);

#endif
