# Step time and speed-up against N, from the bench's CSV, a figure per model:
#     gnuplot -c plots/dp_vs_ddp.gp build/results/dp_vs_ddp.csv build/results
# writes build/results/dp_vs_ddp_MODEL.png and .svg. Virtual times are drawn too where the bench has left some, in the
# file beside that one, dp_vs_ddp_virtual.csv.

csv    = ARGC >= 1 ? ARG1 : "build/results/dp_vs_ddp.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
if (system("test -r '" . csv . "' && echo yes") ne "yes") {
    printerr "there is no " . csv . "; run: make bench-dp-vs-ddp"
    exit status 1
}
load "plots/style.gp"
virtual_csv = csv[:strlen(csv) - 4] . "_virtual.csv"
has_virtual = system("sed -n 2p '" . virtual_csv . "' 2>/dev/null") ne ""
csv = read_csv(csv)
virtual_csv = read_csv(virtual_csv)

# Virtual points: hollow, and of another shape than measured ones
set style line 21 lc rgb color_dp  lw 2 pt 8  ps 1.3
set style line 22 lc rgb color_ddp lw 2 pt 10 ps 1.3

# --- what the file holds ------------------------------------------------------------------------------------------

models = ""    # between newlines, in the file's order
machine = ""
note(model, text) = (models = strstrt(models, "\n" . model . "\n") ? models : (models eq "" ? "\n" : models) . model . "\n", \
                     machine = text, 0)
set table $ignored
plot csv using (note(stringcolumn("model"), \
    (stringcolumn("device") eq "cuda" ? stringcolumn("device_name") : \
        sprintf("%s, %d cores", stringcolumn("cpu"), int(column("cores")))) . ", " . stringcolumn("date")[1:10])):(0) with table
unset table

model_count = 0
do for [i = 2:strlen(models)] { if (models[i:i] eq "\n") { model_count = model_count + 1 } }
# the i-th text between newlines
rest_after(texts, i) = i == 0 ? texts[2:*] : rest_after(texts[strstrt(texts[2:*], "\n") + 1:*], i - 1)
model_at(i) = (tail = rest_after(models, i), tail[1:strstrt(tail, "\n") - 1])

# --- a row's place in a curve --------------------------------------------------------------------------------------

# DP is drawn a little to the left of its N, and DDP to the right, so that neither hides the other. Virtual points stand
# further out.
beside(mode)  = (mode eq "DP" ? -0.012 : 0.012) * n_most
mode(i)       = word("DP DDP", i)
is_mode(mode) = stringcolumn("model") eq model && stringcolumn("mode") eq mode
n_of(mode)        = is_mode(mode) ? column("n") + beside(mode) : NaN
alone_n_of(mode)  = is_mode(mode) && stringcolumn("oversubscribed") eq "no" ? column("n") + beside(mode) : NaN
virtual_n_of(mode) = is_mode(mode) ? column("n") + 2.5 * beside(mode) : NaN
shared_n_of(mode) = is_mode(mode) && stringcolumn("oversubscribed") eq "yes" ? column("n") + beside(mode) : NaN

# Notes what the axes and the title need.
look(n) = (look_at_axes(n), t1_ms = n > 0 ? column("ideal_ms") * n : t1_ms, \
           batch = column("batch"), runs = column("runs"), steps = column("steps"), \
           any_shared = any_shared || stringcolumn("oversubscribed") eq "yes", \
           any_alone = any_alone || stringcolumn("oversubscribed") eq "no", 0)
look_at_virtual(n) = (look_at_axes(n), any_virtual = 1, virtual_runs = column("runs"), virtual_steps = column("steps"), 0)
look_at_axes(n) = (n_ticks = strstrt(n_ticks . ",", sprintf(",%d,", n)) ? n_ticks : n_ticks . sprintf(",%d", n), \
           n_most = n > n_most ? n : n_most, \
           y_most = column("step_ms_max") > y_most ? column("step_ms_max") : y_most, \
           s_most = column("speedup_max") > s_most ? column("speedup_max") : s_most, 0)

# The rest of a plot command: the column y of DP and DDP, as lines, and as points with the spread where there are any.
lines_of(y) = sprintf(', for [i = 1:2] csv using (n_of(mode(i))):(column("%s")) with lines ls i notitle', y)
points_of(csv, y, n_of, ls, more) = sprintf( \
    ', for [i = 1:2] %s using (%s(mode(i))):(column("%s")):(column("%s_min")):(column("%s_max")) with yerrorbars ls %s title mode(i) . "%s"', \
    csv, n_of, y, y, y, ls, more)
curves(y) = lines_of(y) . (any_alone ? points_of("csv", y, "alone_n_of", "i", "") : "") \
                        . (any_shared ? points_of("csv", y, "shared_n_of", "10 + i", ", oversubscribed") : "") \
                        . (any_virtual ? points_of("virtual_csv", y, "virtual_n_of", "20 + i", ", virtual") : "")

# --- figures -------------------------------------------------------------------------------------------------------

do for [m = 0:model_count - 1] {
    model = model_at(m)
    n_ticks = ""; n_most = 1; t1_ms = 0; y_most = 0; s_most = 0; batch = 0; runs = 0; steps = 0; any_shared = 0; any_alone = 0; any_virtual = 0
    set table $ignored
    plot csv using (is_mode("DP") || is_mode("DDP") ? look(column("n")) : 0):(0) with table
    if (has_virtual) {
        plot virtual_csv using (is_mode("DP") || is_mode("DDP") ? look_at_virtual(column("n")) : 0):(0) with table
    }
    unset table
    file = folder . "/dp_vs_ddp_" . system("printf %s '" . model . "' | tr -c 'A-Za-z0-9' _")

    do for [kind in "png svg"] {
        if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
        set multiplot layout 1,2 margins 0.065,0.985,0.135,(any_virtual ? 0.82 : 0.84) spacing 0.075 \
            title sprintf("%s, %d samples per step on every N", model, int(batch)) font title_font noenhanced
        set label 1 sprintf("%s; measured: %d runs of %d steps, bars from the fastest run to the slowest", \
            machine, int(runs), int(steps)) . (any_virtual ? \
            sprintf("\nvirtual: a core for each device, replayed from %d runs of %d steps on one core; their speed-ups are over a virtual T1", \
                int(virtual_runs), int(virtual_steps)) : "") at screen 0.5,0.905 center noenhanced
        ideal_to = n_most > 1 ? n_most : 1.001 # an empty range would be an error
        set xlabel "N, devices"
        set xrange [1 - 0.12 * n_most:1.08 * n_most]
        eval "set xtics (" . n_ticks[2:*] . ")"

        set ylabel "step time [ms]"
        set yrange [0:(y_most > t1_ms ? y_most : t1_ms) * (any_virtual ? 1.45 : 1.35)]
        set key top right maxrows (any_virtual ? 4 : 3) width -3
        eval 'plot sample [1:ideal_to] "+" using 1:(t1_ms / $1) with lines ls 3 title "ideal, T1 / N"' . curves("step_ms")

        unset label 1
        set ylabel "speed-up over one device"
        set yrange [0:(s_most > n_most ? s_most : n_most) * 1.1]
        set key top left maxrows 5 width 0
        eval 'plot sample [1:ideal_to] "+" using 1:1 with lines ls 3 title "ideal, N"' . curves("speedup")
        unset multiplot
        unset output
    }
    print file . ".png"
    print file . ".svg"
}
