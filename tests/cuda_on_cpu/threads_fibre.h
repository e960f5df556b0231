/* Fibres: threads of control that take turns on one thread of the operating system, each with a stack of its own. */
#ifndef CUDA_ON_CPU_THREADS_FIBRE_H
#define CUDA_ON_CPU_THREADS_FIBRE_H

namespace cuda_on_cpu {

struct Fibre;

/* The fibre of the calling thread's own stack, from which the others are entered. One thread at a time uses fibres. */
Fibre *fibre_outside();

/* A fibre that is about to run `loop`, which must not return: new, or one that was given back. Aborts where there is no
 * memory. */
Fibre *fibre_take(void (*loop)());

/* For later fibre_take calls. `stopped_inside` says that it will not go on from where it is: its stack is cleared. */
void fibre_give(Fibre *fibre, bool stopped_inside);

/* Leaves the running fibre and continues with another, until one switches back. */
void fibre_switch(Fibre *to);
Fibre *fibre_running();

/* If one of them is running, which it cannot be in the caller's thread: starts again with none, as in a forked child.
 * False: none is. */
bool fibre_forget_all();

} // namespace cuda_on_cpu

#endif
