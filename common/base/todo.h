/* What a lab leaves to the student: the stub of a removed function calls this (labs/course/cut.awk). */
#ifndef LS_BASE_TODO_H
#define LS_BASE_TODO_H

/* The exit status of a program that came to a function which nobody has written yet. */
#define LS_TODO_EXIT 4

#ifdef __cplusplus
extern "C" {
#endif

/* Says "lab LAB: FUNCTION is not written yet (FILE)" on stderr, once, and ends the process with LS_TODO_EXIT: nothing
 * that follows could be right. The environment's LS_TODO_LOG names a file that gets the line, too: tests/run.sh asks
 * there, since a test may keep what its programs say. Any thread. */
__attribute__((noreturn)) void ls_todo_at(const char *lab, const char *function, const char *file);

#ifdef __cplusplus
}
#endif

#define ls_todo(lab) ls_todo_at(lab, __func__, __FILE__)

/* The same in a kernel, which on a GPU has no stderr: it ends with an error that the host sees at its next call. */
#ifdef __CUDACC__
#define ls_todo_on_device(lab) __trap()
#else
#define ls_todo_on_device(lab) ls_todo(lab)
#endif

#endif
