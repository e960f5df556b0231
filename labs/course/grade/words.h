/* All of the grader's texts for students, in English and in Chinese (LS_LANG=zh). WORDS_... is a pair of formats with
 * the same arguments, English first; the compiler checks both. A probe's texts are translated by phrases.h; those of
 * the compiler and AddressSanitizer are passed on as they are. */
#ifndef LABS_COURSE_GRADE_WORDS_H
#define LABS_COURSE_GRADE_WORDS_H

#include "common/base/log.h"
#include "common/base/status.h"

/* clang-format off */
#define WORDS_LAB                "lab %s, %s\n", "实验 %s，%s\n"
#define WORDS_WAS_NOT_RUN        "  it was not run: %s\n", "  没有运行：%s\n"
#define WORDS_NOT_CONFINED       "nothing confines the code that is graded here: this kernel offers no seccomp filter; grade only your own code, or use another machine", \
    "这台机器的内核不提供 seccomp 过滤器，被评分的代码不受任何限制：只评自己的代码，或换一台机器"
#define WORDS_CHECK              "  %-14s %2d of %2d  %s\n", "  %-14s %2d/%2d 分  %s\n"
#define WORDS_WHY                "      %s: %s\n", "      %s：%s\n"
#define WORDS_HINT               "      hint: %s\n", "      提示：%s\n"
#define WORDS_TOTAL              "lab %s: %d of %d points%s (seed %lld)\n", "实验 %s：得 %d 分，满分 %d 分%s（SEED=%lld）\n"
#define WORDS_WRITE_FIRST        "; no check can be judged before these functions are written", "；先写完这些函数，才能评分"

#define WORDS_HELD               "held", "通过"
#define WORDS_BROKEN             "broken", "未通过"
#define WORDS_HUNG               "hung", "超时"
#define WORDS_FORBIDDEN          "forbidden", "违规"
#define WORDS_NOT_WRITTEN        "not written", "未写"
#define WORDS_NOT_RUN            "not run", "未运行"

#define WORDS_CASE               "%.*s: ", "%.*s："
#define WORDS_AT_THE_END         "at the end: ", "结束时："
#define WORDS_UNWRITTEN          "lab %s: %s is not written yet (%s)", "实验 %s：%s 还没有写（%s）"
#define WORDS_DID_NOT_END        "it did not end, and was killed", "没有结束，已被强制终止"
#define WORDS_SIGNAL             "it was ended by signal %d (%s)", "被信号 %d（%s）终止"
#define WORDS_TOO_EARLY          "it ended the program before the check was done", "检查还没做完，程序就结束了"
#define WORDS_STATUS             "it ended with status %d", "以退出码 %d 结束"
#define WORDS_SAID               ": %.*s", "：%.*s"
#define WORDS_EXPECTED           "%.*s: expected %.*s, got %.*s", "%.*s：应为 %.*s，实为 %.*s"
#define WORDS_MISSING            "%.*s is missing", "缺少 %.*s"
#define WORDS_TRIED              "it tried to %.*s, which a solution has no need of", "代码试图做不允许的事：%.*s；解答不需要它"
#define WORDS_LEFT_PROCESSES     "it left processes behind, which were killed", "留下了没有结束的进程，已全部终止"
#define WORDS_REFERENCE_BROKE    "the reference itself did not come to its end: ", "参考实现自己没有运行完："
#define WORDS_PLACE              ", at %.*s", "，位于 %.*s"
#define WORDS_ANOTHER_MUST_HOLD  "it counts when another check holds", "至少通过另一项检查之后才计分"
#define WORDS_EARLIER_BROKE      "an earlier check is broken", "前面有一项检查未通过"
#define WORDS_EARLIER_HUNG       "an earlier check hung", "前面有一项检查超时"
#define WORDS_AS_IT_IS           "%.*s", "%.*s"
/* clang-format on */

typedef enum words_language { WORDS_ENGLISH, WORDS_CHINESE, WORDS_LANGUAGES } words_language;

/* The language of LS_LANG: NULL, "" and en...: English; zh...: Chinese; anything else: a warning, and English. */
words_language words_language_of(const char *ls_lang);

/* words_in(language, WORDS_HINT): a format for printf. */
const char *words_in(words_language language, const char *english, const char *chinese)
    __attribute__((format_arg(2), format_arg(3)));

/* A text in both languages: for the student, and for grade.json, which is always English. */
typedef struct told {
    char text[WORDS_LANGUAGES][1024];
} told;

/* words_add(&why, WORDS_MISSING, length, name) appends the text. A text that is cut ends with a whole character. */
void words_add(told *out, const char *english, const char *chinese, ...) LS_PRINTF(2, 4) LS_PRINTF(3, 4);

/* The same in one language, if the arguments also differ by language. */
void words_add_in(told *out, words_language language, const char *format, ...) LS_PRINTF(3, 4);

/* Removes an incomplete UTF-8 character at the end of the text. */
void words_end_whole(char *text);

#endif
