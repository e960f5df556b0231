/* Stubs of the functions that a lab leaves to the student call ls_todo (labs/course/cut.awk). */
#ifndef LS_BASE_TODO_H
#define LS_BASE_TODO_H

/* The exit status of a program that calls a function which is not written yet. */
#define LS_TODO_EXIT 4

#ifdef __cplusplus
extern "C" {
#endif

/* Prints "lab LAB: FUNCTION is not written yet (FILE)" on stderr, once, and ends the process with LS_TODO_EXIT, since
 * no later result could be right. Appends the line to the file named by LS_TODO_LOG, if that is set: tests/run.sh reads
 * it there, since a test may capture the output of its programs. Any thread. */
__attribute__((noreturn)) void ls_todo_at(const char *lab, const char *function, const char *file);

#ifdef __cplusplus
}
#endif

#define ls_todo(lab) ls_todo_at(lab, __func__, __FILE__)

/* The same in a kernel. A GPU has no stderr: the kernel traps, and the host sees the error at its next call. */
#ifdef __CUDACC__
#define ls_todo_on_device(lab) __trap()
#else
#define ls_todo_on_device(lab) ls_todo(lab)
#endif

#endif
