/* What the page says of its own accord, in English and in Chinese: one row a phrase. */
#ifndef LABS_COURSE_REPORT_WORDS_H
#define LABS_COURSE_REPORT_WORDS_H

/* X(NAME, English, Chinese); some are formats, whose arguments are the same in both. */
#define WORDS_MAP(X)                                                                                                   \
    X(PAGE_LANGUAGE, "en", "zh-CN")                                                                                    \
    X(REPORT, "Course report", "课程报告")                                                                             \
    X(SUMMARY, "Summary", "总览")                                                                                      \
    X(LAB, "Lab", "实验")                                                                                              \
    X(POINTS, "Points", "得分")                                                                                        \
    X(POINTS_OF, "%d of %d", "%d / %d")                                                                                \
    X(CAME_TRUE, "Predictions that were right", "与结果相符的预测")                                                    \
    X(ANSWERED, "Questions answered", "已回答的问题")                                                                  \
    X(ALL_LABS, "All", "合计")                                                                                         \
    X(NOT_GRADED, "not graded", "未评分")                                                                              \
    X(CHANGED_SINCE, "code changed since", "评分后代码有改动")                                                         \
    X(NOT_RUN, "not run", "未运行")                                                                                    \
    X(MACHINE, "This machine", "运行环境")                                                                             \
    X(MACHINE_NOTE,                                                                                                    \
      "As it was when this page was made. A figure that is measured depends on the machine on which the program ran; " \
      "one that is exact is the same everywhere.",                                                                     \
      "以下是生成本页时的情况。实测的数字取决于运行程序的机器；精确的数字在任何机器上都相同。")                        \
    X(PROCESSOR, "Processor", "处理器")                                                                                \
    X(CORES, "Cores", "核心数")                                                                                        \
    X(MEMORY, "Memory", "内存")                                                                                        \
    X(LOAD, "Load", "负载")                                                                                            \
    X(LOAD_NOTE, "%.2f (mean of the last minute)", "%.2f（最近一分钟的平均值）")                                       \
    X(SYSTEM, "System", "操作系统")                                                                                    \
    X(COMPILER, "Compiler", "编译器")                                                                                  \
    X(LOCKSTEP, "lockstep", "lockstep")                                                                                \
    X(LOCKSTEP_COMMIT, "%s, commit %s", "%s，提交 %s")                                                                 \
    X(DATE, "Made on", "生成时间")                                                                                     \
    X(UNKNOWN, "unknown", "未知")                                                                                      \
    X(LAB_TITLE, "Lab %s, %s", "实验 %s：%s")                                                                          \
    X(PREDICTIONS, "Predictions and results", "预测与结果")                                                            \
    X(QUESTION, "Question", "问题")                                                                                    \
    X(PREDICTED, "Predicted", "预测")                                                                                  \
    X(RESULT, "Result", "结果")                                                                                        \
    X(NOT_PREDICTED, "no prediction", "没有写预测")                                                                    \
    X(LAB_NOT_RUN, "There are no results yet: make lab LAB=%s", "还没有结果，请运行：make lab LAB=%s")                 \
    X(TRUE_MARK, "right", "相符")                                                                                      \
    X(FALSE_MARK, "not right", "不符")                                                                                 \
    X(KIND_COUNTED, "exact", "精确")                                                                                   \
    X(KIND_MEASURED, "measured", "实测")                                                                               \
    X(KIND_REPLAYED, "replayed", "回放")                                                                               \
    X(KIND_VIRTUAL, "virtual", "虚拟")                                                                                 \
    X(KIND_COMPUTED, "computed", "计算")                                                                               \
    X(KIND_NOT_SAID, "the picture does not say how it was obtained", "图中没有说明数据来源")                           \
    X(REMARKS, "Remarks on the predictions", "对预测的补充说明")                                                       \
    X(GRADE, "Grade", "评分")                                                                                          \
    X(GRADE_LINE, "%d of %d points (seed %.0f)", "%d / %d 分（种子 %.0f）")                                            \
    X(LAB_NOT_GRADED, "Not graded yet: make grade LAB=%s", "还没有评分，请运行：make grade LAB=%s")                    \
    X(GRADED_OTHER, "The code has changed since it was graded: make grade LAB=%s",                                     \
      "评分之后代码有改动，请重新运行：make grade LAB=%s")                                                             \
    X(FIRST_FAILURE, "First failing case:", "第一个出错的情形：")                                                      \
    X(CHECK, "Check", "检查项")                                                                                        \
    X(INVARIANT, "What must hold", "必须成立的性质")                                                                   \
    X(VERDICT, "Verdict", "结论")                                                                                      \
    X(FIGURES, "Figures", "图")                                                                                        \
    X(PROGRAM_FIGURES, "Figures of the programs", "各程序的图")                                                        \
    X(PROGRAM_FIGURES_NOTE, "From %s: what make bench-dp-vs-ddp, make plots and other targets drew.",                  \
      "来自 %s：由 make bench-dp-vs-ddp、make plots 等命令绘制。")                                                     \
    X(DRAWN_BY, ", drawn by gnuplot", "，由 gnuplot 绘制")                                                             \
    X(LEFT_OUT, "; %d parts of the file are left out here", "；文件中有 %d 个部分未收入本页")                          \
    X(NOT_SHOWN, "; not shown: %s", "；无法显示：%s")                                                                  \
    X(MORE_FIGURES, "%d more pictures are not shown.", "另有 %d 幅图未显示。")                                         \
    X(CODE, "Code", "代码")                                                                                            \
    X(CODE_NOTE, "What differs from the file that was handed out.", "与发放的文件相比，有改动的部分。")                \
    X(NO_CODE, "Nothing is written yet.", "还没有写代码。")                                                            \
    X(MORE_LINES, "%d more lines are left out here.", "另有 %d 行未显示。")                                            \
    X(ANSWERS, "Answers", "回答")                                                                                      \
    X(NO_ANSWERS, "None yet. Write them into %s", "还没有回答。请写在 %s 中")                                          \
    X(NO_ANSWER, "no answer yet", "还没有回答")                                                                        \
    X(CONTENTS_NOTE,                                                                                                   \
      "Made by make report, from the files in the tree and from the last runs of make lab and make grade.",            \
      "由 make report 生成，依据目录中的文件，以及最近一次 make lab 和 make grade 的结果。")

#define WORDS_ENUM(name, english, chinese) WORD_##name,
typedef enum word { WORDS_MAP(WORDS_ENUM) WORD_COUNT } word;

typedef enum language { ENGLISH, CHINESE } language;

const char *words_of(language l, word w);

#endif
