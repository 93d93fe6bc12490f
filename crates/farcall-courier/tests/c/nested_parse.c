/*
 * What the 1980s' Courier compiler took from its own yacc and lex, for bison and flex: parsing one file
 * within another (DEPENDS UPON), the end of a file, and printing of an error's arguments.
 */
#include "compiler.h"
#include "y.tab.h"

typedef struct yy_buffer_state *buffer;
extern buffer yy_create_buffer(FILE *file, int size);
extern void yypush_buffer_state(buffer), yypop_buffer_state(void);
extern void free(void *);
extern int yylineno, yynerrs, yychar;

struct outer_file {
    YYSTYPE value;
    int token, errors, line, nested, version, program_number;
    char *program;
    struct object *module;
};

/* The parser's own stacks are local to each call of bison's yyparse. */
int *save_parser_state(void)
{
    struct outer_file *outer = New(struct outer_file);

    outer->value = yylval;
    outer->token = yychar;
    outer->errors = yynerrs;
    outer->line = yylineno;
    outer->nested = recursive_flag;
    outer->program = CurrentProgram;
    outer->version = CurrentVersion;
    outer->program_number = CurrentNumber;
    outer->module = CurrentModule;
    yypush_buffer_state(yy_create_buffer(stdin, 16384));
    yylineno = 1;
    recursive_flag = 1;
    return (int *)outer;
}

void restore_parser_state(int *saved)
{
    struct outer_file *outer = (struct outer_file *)saved;

    yypop_buffer_state();
    yylval = outer->value;
    yychar = outer->token;
    yynerrs = outer->errors;
    yylineno = outer->line;
    recursive_flag = outer->nested;
    CurrentProgram = outer->program;
    CurrentVersion = outer->version;
    CurrentNumber = outer->program_number;
    CurrentModule = outer->module;
    free(outer);
}

int yywrap(void)
{
    return 1;
}

/*
 * Prints an error's text with its first argument, a string or a number in an int. Where others are is not
 * known on every machine.
 */
int _doprnt(const char *format, const unsigned *argument, FILE *to)
{
    int given = 0;

    for (; *format; format++) {
        if (*format != '%')
            putc(*format, to);
        else if (*++format == 's')
            fputs(given++ ? "?" : (const char *)(size_t)*argument, to);
        else
            fprintf(to, given++ ? "?" : "%d", *argument);
    }
    return 0;
}
