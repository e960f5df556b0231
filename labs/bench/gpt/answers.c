/* answers: the first lines, a sentence each: a step's speed and its bound; PyTorch; two devices; attention. */
#include <math.h>

#include "labs/bench/gpt/bench_gpt.h"

static bool is_there(const gpt_row *row) { return row && !isnan(row->ms); }

/* Writes the spread in percent of the median; it is unknown if there is one run. */
static void put_spread(FILE *file, const gpt_row *row) {
    if (row->run_count > 1)
        fprintf(file, "spread %.1f %%", 100 * (row->ms_max - row->ms_min) / row->ms);
    else
        fputs("one run", file);
}

static void put_step(FILE *file, const gpt_results *results) {
    const gpt_settings *s = results->settings;
    const gpt_row *step = gpt_find(results, GPT_SINGLE, 0), *products = gpt_find(results, GPT_PRODUCTS, 0);
    char model[LS_GPT_TEXT_NBYTES];
    ls_gpt_describe(&s->sizes, model, sizeof model);
    fprintf(file, "%s, %d sequences, AdamW, one core, measured: ", model, s->batch);
    if (!is_there(step)) {
        fputs("failed\n", file);
        return;
    }
    fprintf(file, "%.1f ms a step (", step->ms);
    put_spread(file, step);
    fprintf(file, "), %.0f tokens/s\n", 1e3 * s->batch * s->sizes.context / step->ms);
    if (is_there(products))
        fprintf(file,
                "Its matrix multiplies: %.2f GFLOP, %.1f ms at this core's %.0f GFLOP/s: the step takes %.2fx that (in "
                "their own "
                "shapes %.1f ms)\n",
                gpt_product_flops(s) * 1e-9, products->ms, results->rate * 1e-9, products->speed, results->own_ms);
}

static void put_pytorch(FILE *file, const gpt_results *results) {
    const gpt_row *eager = gpt_find(results, GPT_EAGER, 0), *compiled = gpt_find(results, GPT_COMPILED, 0);
    if (!eager) {
        fputs("PyTorch: not asked for\n", file);
    } else if (!is_there(eager)) {
        fprintf(file, "PyTorch: %s\n", eager->failed ? "failed" : "not here, so not compared with");
    } else {
        const gpt_row *best = is_there(compiled) && compiled->ms < eager->ms ? compiled : eager;
        fprintf(file, "PyTorch %s on the same core, %s: %.1f ms; lockstep is %.2fx as fast (rounds %.2f to %.2f)",
                results->pytorch, best == compiled ? "compiled" : "eager", best->ms, 1 / best->speed,
                1 / best->speed_max, 1 / best->speed_min);
        if (!is_there(compiled)) fputs("; it does not compile here", file);
        fputc('\n', file);
    }
}

static void put_modes(FILE *file, const gpt_results *results) {
    const gpt_row *dp = gpt_find(results, GPT_DP, 0), *ddp = gpt_find(results, GPT_DDP, 0);
    if (!is_there(dp) || !is_there(ddp)) {
        fprintf(file, "N = %d: a run failed, so nothing is compared\n", GPT_DEVICES);
        return;
    }
    fprintf(file, "N = %d: DP %.2fx, DDP %.2fx one core's speed%s; same weights: %s\n", GPT_DEVICES, dp->speed,
            ddp->speed, dp->oversubscribed ? " (oversubscribed: this only shows time-slicing)" : "",
            gpt_same_weights(results) ? "yes, bit for bit, in every run" : "no");
}

/* Writes the least context from which on tiles are never slower. */
static void put_attention(FILE *file, const gpt_results *results) {
    const gpt_settings *s = results->settings;
    int from = 0;
    for (int i = s->contexts.count - 1; i >= 0; i--) {
        const gpt_row *tiles = gpt_find(results, GPT_TILES, s->contexts.values[i]);
        if (!(tiles->speed >= 1)) break;
        from = tiles->context;
    }
    int longest = s->contexts.values[s->contexts.count - 1];
    const gpt_row *tiles = gpt_find(results, GPT_TILES, longest), *scores = gpt_find(results, GPT_SCORES, longest);
    if (!is_there(tiles) || !is_there(scores)) {
        fputs("Attention: a run failed, so nothing is compared\n", file);
        return;
    }
    if (from > 0)
        fprintf(file, "Attention: tile by tile is not slower than scores in memory from T = %d on", from);
    else
        fprintf(file, "Attention: tile by tile is slower than scores in memory at T = %d", longest);
    fprintf(file, "; at T = %d it takes %.2fx the time, and the network's activations %.2fx the memory\n", longest,
            1 / tiles->speed, tiles->activation_bytes / scores->activation_bytes);
}

void gpt_put_answers(FILE *file, const gpt_results *results) {
    put_step(file, results);
    put_pytorch(file, results);
    put_modes(file, results);
    put_attention(file, results);
}
