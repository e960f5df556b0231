# Time and bus bandwidth of all_reduce against the message size, a figure per variant and N, and against N, a figure per variant; from
# the CSV of bench_comm:
#     gnuplot -c plots/allreduce.gp build/results/comm.csv build/results
# Each algorithm has a line and a marker.
# writes build/results/allreduce_BACKEND_BUFFERS_nN.png and .svg, and allreduce_BACKEND_BUFFERS_by_n.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/comm.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "csv"; source = "make bench-comm"
load "plots/read.gp"
csv = "$csv"

# --- contents of the file -----------------------------------------------------------------------------------------

# Lists of texts, separated by newlines, in the file's order.
add(texts, text) = strstrt(texts, "\n" . text . "\n") ? texts : (texts eq "" ? "\n" : texts) . text . "\n"
rest_after(texts, i) = i == 0 ? texts[2:*] : rest_after(texts[strstrt(texts[2:*], "\n") + 1:*], i - 1)
at(texts, i) = (tail = rest_after(texts, i), tail[1:strstrt(tail, "\n") - 1])
count(texts) = (c = 0, sum [i = 2:strlen(texts)] (texts[i:i] eq "\n" ? 1 : 0))

variants = ""; series = ""; others = ""; numbers = ""; sizes = ""
machine = ""; runs = 0; cores = 0; dtype = ""; reduce = ""
is_ours(dummy) = stringcolumn("library") eq "lockstep"
is_timed(dummy) = stringcolumn("op") eq "all_reduce" && stringcolumn("how") eq "measured"
note(dummy) = (is_ours(0) ? (variants = add(variants, stringcolumn("backend") . " " . stringcolumn("buffers")), \
                             series = add(series, stringcolumn("algorithm"))) \
                          : (others = add(others, stringcolumn("library"))), \
               numbers = add(numbers, stringcolumn("n")), sizes = add(sizes, stringcolumn("bytes")), \
               runs = column("runs"), cores = column("cores"), \
               dtype = stringcolumn("dtype"), reduce = stringcolumn("reduce"), \
               machine = sprintf("%s, %d cores, %s", stringcolumn("cpu"), int(column("cores")), stringcolumn("date")[1:10]), 0)
set table $ignored
plot csv using (is_timed(0) ? note(0) : 0):(0) with table
unset table
if (variants eq "") {
    print "no times of all_reduce in the results: no picture of them"
    exit status 0
}
our_count = count(series)
series_count = our_count + count(others)
series = series . others[2:*]

# --- styles ---------------------------------------------------------------------------------------------------------

# A style by name, so that an algorithm looks the same in every figure; new algorithms take the last styles.
known = "\ndirect\nring\nhalving-doubling\ntree\nnaive\n"
colors = "#0072B2 #D55E00 #009E73 #CC79A7 #999999 #56B4E9 #E69F00 #7F3F00 #5F5F00"
points = "7 5 9 11 13 4 2 8 10"
place_of(list, text) = (before = strstrt(list, "\n" . text . "\n"), before == 0 ? 0 : count(list[1:before]) + 1)
unknown = 0
look_of(i) = (name = at(series, i), i >= our_count ? 6 + i - our_count : \
              place_of(known, name) > 0 ? place_of(known, name) : 8 + (unknown = unknown + 1) % 2)
do for [i = 0:series_count - 1] {
    look = look_of(i)
    dashes = i >= our_count ? 2 : 1
    set style line 20 + i lc rgb word(colors, look) lw 2 pt int(word(points, look)) ps 0.9 dt dashes
    set style line 60 + i lc rgb word(colors, look) lw 1
}

# --- a row's position in a curve ------------------------------------------------------------------------------------

is_row(i) = is_timed(0) && (i >= our_count ? stringcolumn("library") eq at(series, i) : is_ours(0) && \
            stringcolumn("algorithm") eq at(series, i) && stringcolumn("backend") . " " . stringcolumn("buffers") eq variant)
bytes_of(i) = is_row(i) && column("n") == n ? column("bytes") : NaN
n_of(i, nbytes) = is_row(i) && column("bytes") == nbytes ? column("n") : NaN
# bus bandwidth follows from time, and so do the ends of its bars
busbw(which) = column("busbw_GBps") * column("time_us") / column(which)

# Every algorithm's line, with thin bars.
curves(x, y, low, high) = sprintf('for [i = 0:series_count - 1] csv using (%s):(%s):(%s):(%s) with yerrorbars ls 60 + i ps 0 notitle, ', x, y, low, high) \
    . sprintf('for [i = 0:series_count - 1] csv using (%s):(%s) with linespoints ls 20 + i title (at(series, i))', x, y)
time_curves(x)  = curves(x, 'column("time_us")', 'column("p10_us")', 'column("p90_us")')
busbw_curves(x) = curves(x, 'busbw("time_us")', 'busbw("p90_us")', 'busbw("p10_us")')

# --- axes -----------------------------------------------------------------------------------------------------------

size_least = 1e300; size_most = 0
do for [s = 0:count(sizes) - 1] {
    b = at(sizes, s) + 0
    if (b < size_least) { size_least = b }
    if (b > size_most) { size_most = b }
}
size_text(b) = b < 1024 ? sprintf("%d B", b) : b < 1048576 ? sprintf("%g KiB", b / 1024.0) : sprintf("%g MiB", b / 1048576.0)
# Ticks at powers of ten, all with their unit; a short axis has more of them.
time_text(us) = us < 999 ? sprintf("%g µs", us) : us < 999e3 ? sprintf("%g ms", us / 1e3) : sprintf("%g s", us / 1e6)
rate_text(gb) = gb < 0.999e-3 ? sprintf("%g KB/s", gb * 1e6) : gb < 0.999 ? sprintf("%g MB/s", gb * 1e3) : gb < 999 ? sprintf("%g GB/s", gb) : sprintf("%g TB/s", gb / 1e3)
ticks(text) = (list = "", digits = y_most > 100 * y_least ? "1" : y_most > 8 * y_least ? "1 2 5" : "1 2 3 4 5 6 7 8 9", \
    sum [e = -8:9] (sum [d = 1:words(digits)] (add_tick(text, word(digits, d) * 10.0 ** e))), list)
add_tick(text, y) = (list = list . sprintf('%s"%s" %.9g', list eq "" ? "" : ", ", text eq "time" ? time_text(y) : rate_text(y), y), 0)
# The least and the greatest value `of(which)` of the rows selected by `shown(i)`.
widen(low, high) = (y_least = low < y_least ? low : y_least, y_most = high > y_most ? high : y_most, 0)
axis(text, x, low, high) = 'y_least = 1e300; y_most = 0; set table $ignored; set yrange [*:*]; ' \
    . sprintf('plot for [i = 0:series_count - 1] csv using ((at_x = %s) == at_x ? widen(%s, %s) : 0):(0) with table; unset table; ', x, low, high) \
    . sprintf('eval "set ytics (" . ticks("%s") . ")"; set yrange [y_least / 1.3:y_most * 1.3]', text)
time_axis(x)  = axis("time", x, 'column("p10_us")', 'column("p90_us")')
busbw_axis(x) = axis("rate", x, 'busbw("p90_us")', 'busbw("p10_us")')
where(v, more) = sprintf("all_reduce, %s %s, %s%s", dtype, reduce, v eq "threads shared" ? "threads" : \
                         "processes, buffers in " . (v eq "shm shared" ? "shared memory" : "private memory"), more)
compared = others eq "" ? "" : "; other libraries: processes, private memory"
explain = sprintf("%s; measured: medians of %d runs, bars from 10 %% to 90 %% of them%s", machine, int(runs), compared)

# For eval: the panels' frame with a title; the legend is to the right of both.
begin_panels(title) = (panels_title = title, \
    'set multiplot layout 1,2 margins 0.075,0.80,0.12,0.85 spacing 0.095 title panels_title font title_font noenhanced')
set key at screen 0.815,0.85 left top vertical Left maxrows 20 noenhanced
set logscale y

do for [v = 0:count(variants) - 1] {
    variant = at(variants, v)
    name = folder . "/allreduce_" . word(variant, 1) . "_" . word(variant, 2)

    # --- against the size, for each N
    do for [k = 0:count(numbers) - 1] {
        n = int(at(numbers, k)) + 0
        heading = where(variant, sprintf(", N = %d%s", n, n > cores ? sprintf(" (oversubscribed: %d cores)", int(cores)) : ""))
        do for [kind in "png svg"] {
            if (kind eq "png") { eval open_png(name . sprintf("_n%d", n), 1700, 700) } else { eval open_svg(name . sprintf("_n%d", n), 1700, 700) }
            eval begin_panels(heading)
            set label 1 explain at screen 0.5,0.905 center noenhanced
            set xlabel "message size, per rank"
            set logscale x 2
            set xrange [size_least / 1.6:size_most * 1.6]
            set xtics ("8 B" 8, "128 B" 128, "2 KiB" 2048, "32 KiB" 32768, "512 KiB" 524288, "8 MiB" 8388608, "128 MiB" 134217728)
            set ylabel "time"
            eval time_axis("bytes_of(i)")
            set key
            eval "plot " . time_curves("bytes_of(i)")
            unset label 1
            unset key
            set ylabel "bus bandwidth"
            eval busbw_axis("bytes_of(i)")
            eval "plot " . busbw_curves("bytes_of(i)")
            unset multiplot
            unset output
        }
        print name . sprintf("_n%d.png", n)
        print name . sprintf("_n%d.svg", n)
    }

    # --- against N, for a small and for the largest message
    if (count(numbers) > 1) {
        small = size_least; large = size_most
        do for [s = 0:count(sizes) - 1] {
            b = at(sizes, s) + 0
            if (b <= 1024 && b > small) { small = b }
        }
        n_ticks = ""
        do for [k = 0:count(numbers) - 1] { n_ticks = n_ticks . (k ? "," : "") . at(numbers, k) }
        do for [kind in "png svg"] {
            if (kind eq "png") { eval open_png(name . "_by_n", 1700, 700) } else { eval open_svg(name . "_by_n", 1700, 700) }
            eval begin_panels(where(variant, sprintf(" (more than %d ranks: oversubscribed)", int(cores))))
            set label 1 explain at screen 0.5,0.905 center noenhanced
            set xlabel "N, ranks"
            unset logscale x
            set xrange [*:*]
            set autoscale xfix
            set offsets graph 0.05, graph 0.05, 0, 0
            eval "set xtics (" . n_ticks . ")"
            set ylabel "time of " . size_text(small)
            eval time_axis("n_of(i, small)")
            set key
            eval "plot " . time_curves("n_of(i, small)")
            unset label 1
            unset key
            set ylabel "bus bandwidth of " . size_text(large)
            eval busbw_axis("n_of(i, large)")
            eval "plot " . busbw_curves("n_of(i, large)")
            unset multiplot
            unset output
            set offsets 0, 0, 0, 0
        }
        print name . "_by_n.png"
        print name . "_by_n.svg"
    }
}
