/* The local procedures of program 1, in a file of their own so that no compiler inlines them. */
void local_none(void) {}
void local_two(short argument) { (void)argument; }
void local_four(int argument) { (void)argument; }
