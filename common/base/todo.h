/* What a lab leaves to the student: the stub of a removed function calls this (labs/course/cut.awk). */
#ifndef LS_BASE_TODO_H
#define LS_BASE_TODO_H

/* The exit status of a program that came to a function which nobody has written yet. */
#define LS_TODO_EXIT 4

/* Says "lab LAB: FUNCTION is not written yet (FILE)" on stderr, once, and ends the process with LS_TODO_EXIT: nothing
 * that follows could be right. The environment's LS_TODO_LOG names a file that gets the line, too: tests/run.sh asks
 * there, since a test may keep what its programs say. Any thread. */
_Noreturn void ls_todo_at(const char *lab, const char *function, const char *file);

#define ls_todo(lab) ls_todo_at(lab, __func__, __FILE__)

#endif
