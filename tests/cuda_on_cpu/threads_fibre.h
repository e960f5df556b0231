/* Fibres: threads of control that take turns on one thread of the operating system, each with a stack of its own. */
#ifndef CUDA_ON_CPU_THREADS_FIBRE_H
#define CUDA_ON_CPU_THREADS_FIBRE_H

namespace cuda_on_cpu {

struct Fibre;

/* The fibre of the calling thread's own stack, from which the others are entered. Only one thread at a time may use
 * fibres. */
Fibre *fibre_outside();

/* A fibre that is about to run `loop`, which must not return: a new one, or one that was given back. Aborts if there is
 * no memory. */
Fibre *fibre_take(void (*loop)());

/* Returns a fibre for later fibre_take calls. `stopped_inside` means that it will not continue from where it is: its
 * stack is cleared. */
void fibre_give(Fibre *fibre, bool stopped_inside);

/* Leaves the running fibre and continues with another, until one switches back. */
void fibre_switch(Fibre *to);
Fibre *fibre_running();

/* For a child that was forked while a fibre ran: forgets all fibres, as if none had run. False, and nothing changes, if no
 * fibre was running. */
bool fibre_forget_all();

} // namespace cuda_on_cpu

#endif
