/* A message that several processes of a job would print is printed by one of them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log_once.h"
#include "tests/base/test.h"

enum { PROCESSES = 8, MESSAGES = 1000 };

/* Runs body in a child process; returns its exit status. */
static int in_child(int (*body)(int argument), int argument) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(body(argument));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int is_first(int number) {
    char message[32];
    snprintf(message, sizeof message, "message %d", number);
    return ls_log_once(message);
}

/* How many of the messages 0 .. n-1 this process is the first to report. */
static int count_first(int n) {
    int count = 0;
    for (int i = 0; i < n; i++) count += is_first(i);
    return count;
}

static int without_memory(int fd) {
    FILE *file = tmpfile(); /* the descriptor of an unrelated file */
    if (fd < 0) ls_log_once_join(file ? fileno(file) : -1);
    int said = count_first(2);
    said += count_first(2); /* again, as if for the first time */
    bool empty = !file || lseek(fileno(file), 0, SEEK_END) == 0;
    return said == 4 && empty ? 0 : 1;
}

TEST(without_the_memory_everything_is_said) {
    assert_int_equal(in_child(without_memory, 0), 0);
    assert_int_equal(in_child(without_memory, -1), 0);
}

/* A file of the right size is not a launcher's page either. */
static int with_a_file(int unused) {
    (void)unused;
    FILE *file = tmpfile();
    if (!file || ftruncate(fileno(file), 512 * 8) != 0) return 1;
    ls_log_once_join(fileno(file));
    char text[512 * 8];
    if (!is_first(1) || fread(text, 1, sizeof text, file) != sizeof text) return 1;
    for (size_t i = 0; i < sizeof text; i++)
        if (text[i] != 0) return 1;
    return 0;
}

TEST(a_file_is_left_alone) { assert_int_equal(in_child(with_a_file, 0), 0); }

static int one_says_it(int fd) {
    ls_log_once_join(fd);
    int said = count_first(2);
    said += count_first(2); /* a process may repeat itself */
    if (said != 4) return 1;
    if (in_child(is_first, 1) != 0) return 2;
    if (in_child(is_first, 5) != 1) return 3;
    return is_first(5) ? 4 : 0; /* the child was first, and counts although it has ended */
}

TEST(another_process_does_not_say_it_again) {
    int fd = ls_log_once_create();
    assert_true(fd >= 0);
    assert_int_equal(in_child(one_says_it, fd), 0);
    close(fd);
}

/* All at the same time: exactly one process prints each message. */
TEST(of_many_processes_one_says_it) {
    int fd = ls_log_once_create(), results[2], total = 0, counted;
    assert_int_equal(pipe(results), 0);
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid > 0) continue;
        ls_log_once_join(fd);
        int count = count_first(200);
        _exit(write(results[1], &count, sizeof count) == sizeof count ? 0 : 1);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(read(results[0], &counted, sizeof counted), sizeof counted);
        total += counted;
        assert_true(wait(NULL) > 0);
    }
    assert_int_equal(total, 200);
    close(fd);
    close(results[0]);
    close(results[1]);
}

/* When the page is full, no message is suppressed. */
static int too_much(int fd) {
    ls_log_once_join(fd);
    return count_first(MESSAGES) == MESSAGES && is_first(MESSAGES - 1) ? 0 : 1;
}

TEST(a_full_memory_keeps_nothing_back) {
    int fd = ls_log_once_create();
    assert_int_equal(in_child(too_much, fd), 0);
    close(fd);
}

int main(void) {
    alarm(60);
    return run_added_tests();
}
