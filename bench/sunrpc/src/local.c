/* Program 1: loops around calls of local procedures, which are in another file. */
void local_none(void);
void local_two(short);
void local_four(int);

/* Executes a loop: an empty one, or one that calls the procedure with so many bytes of argument. */
void bench_local(int bytes, unsigned iterations) {
    switch (bytes) {
    case 0:
        for (unsigned i = 0; i < iterations; i++)
            local_none();
        return;
    case 2:
        for (unsigned i = 0; i < iterations; i++)
            local_two((short)i);
        return;
    case 4:
        for (unsigned i = 0; i < iterations; i++)
            local_four((int)i);
        return;
    default:
        for (unsigned i = 0; i < iterations; i++)
            __asm__ volatile("");
    }
}
