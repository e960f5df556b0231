# Step time and speed-up against N, from the bench's CSV, a figure per model:
#     gnuplot -c plots/dp_vs_ddp.gp build/results/dp_vs_ddp.csv build/results
# writes build/results/dp_vs_ddp_MODEL.png and .svg. Virtual times are also plotted if the bench has written any, to
# dp_vs_ddp_virtual.csv in the same folder. The headline is the bench's own answer, from dp_vs_ddp.txt.
#
# How to read it: each mode has a colour. The points of an N are side by side. Filled points on a thick line were measured with a core for each device; hollow
# points on a thin line are virtual. Crosses are measured with more devices than cores, which only shows time-slicing: they have no line.

csv    = ARGC >= 1 ? ARG1 : "build/results/dp_vs_ddp.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
stem = csv[1:strlen(csv) - 4]
# The answers, a line per model, up to the line's first bracket.
path = stem . ".txt"; block = "ignored"; source = ""
load "plots/read.gp"
answers = line_count
array answer[answers + 1]
do for [i = 1:answers] { answer[i] = lines[i] }
without_rest(text) = strstrt(text, ")") ? text[1:strstrt(text, ")")] : text
comma = " "
path = stem . "_virtual.csv"; block = "virtual_csv"
load "plots/read.gp"
virtual_csv = "$virtual_csv"
has_virtual = line_count > 1
path = csv; block = "csv"; source = "make bench-dp-vs-ddp"
load "plots/read.gp"
csv = "$csv"

# Virtual: hollow points, thin lines. Devices that share cores: crosses.
set style line 11 lc rgb color_dp  lw 1.5 pt 2 ps 1.4
set style line 12 lc rgb color_ddp lw 1.5 pt 2 ps 1.4
set style line 21 lc rgb color_dp  lw 1.5 pt 6 ps 1.4
set style line 22 lc rgb color_ddp lw 1.5 pt 4 ps 1.3
set style line 23 lc rgb "black"   lw 1.5 pt 6 ps 1.4
set style line 1 lc rgb color_dp lw 2.5 pt 7 ps 1.2
set style line 2 lc rgb color_ddp lw 2.5 pt 5 ps 1.1
set style line 4 lc rgb "black" lw 1.5 dt (2,4) # T1

# --- contents of the file -----------------------------------------------------------------------------------------

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

# --- a row's position in a curve -----------------------------------------------------------------------------------

# A row that failed has no time, and no point; without T1 there is no ideal. Points of one N are side by side: measured
# DP and DDP left of it, virtual ones right of it.
mode(i)         = word("DP DDP", i)
is_mode(mode)   = stringcolumn("model") eq model && stringcolumn("mode") eq mode
is_shared(yes)  = stringcolumn("oversubscribed") eq yes
beside(mode, w) = column("n") + (w + (mode eq "DP" ? 0 : 1)) * 0.015 * n_most
alone_n(mode)   = is_mode(mode) && is_shared("no") ? beside(mode, any_virtual ? -1.5 : -0.5) : NaN
shared_n(mode)  = is_mode(mode) && is_shared("yes") ? beside(mode, any_virtual ? -1.5 : -0.5) : NaN
# a virtual curve begins at its own T1
virtual_n(mode) = is_mode(mode) || is_mode("single") ? beside(mode, 0.5) : NaN

# Collects the values for the axes and the title.
look(n) = (look_at_axes(n), is_weak = stringcolumn("scaling") eq "weak", t1_ms = column("ideal_ms") > 0 ? column("ideal_ms") * (is_weak ? 1 : n) : t1_ms, \
           batch = column(is_weak ? "per_device_batch" : "batch"), runs = column("runs"), steps = column("steps"), \
           any_shared = any_shared || is_shared("yes"), any_alone = any_alone || is_shared("no"), 0)
look_at_virtual(n) = (look_at_axes(n), any_virtual = 1, virtual_runs = column("runs"), virtual_steps = column("steps"), 0)
look_at_axes(n) = (n_ticks = strstrt(n_ticks . ",", sprintf(",%d,", n)) ? n_ticks : n_ticks . sprintf(",%d", n), \
           n_most = n > n_most ? n : n_most, \
           y_most = column("step_ms_max") > y_most ? column("step_ms_max") : y_most, \
           s_most = column("speedup_max") > s_most ? column("speedup_max") : s_most, 0)

# The rest of a plot command: the column y of DP and DDP, as a line and as points with their spread.
line(csv, y, n_of, ls) = sprintf(', for [i = 1:2] %s using (%s(mode(i))):(column("%s")) with lines ls %s notitle', csv, n_of, y, ls)
bars(csv, y, n_of, ls) = sprintf(', for [i = 1:2] %s using (%s(mode(i))):(column("%s")):(column("%s_min")):(column("%s_max")) with yerrorbars ls %s notitle', \
    csv, n_of, y, y, y, ls)
points(csv, y, n_of, ls) = sprintf(', for [i = 1:2] %s using (%s(mode(i))):(column("%s")) with points ls %s notitle', csv, n_of, y, ls)
both(csv, y, n_of, ls) = line(csv, y, n_of, ls) . bars(csv, y, n_of, ls)
curves(y) = (any_virtual ? both("virtual_csv", y, "virtual_n", "20 + i") : "") . (any_alone ? both("csv", y, "alone_n", "i") : "") \
          . (any_shared ? points("csv", y, "shared_n", "10 + i") : "")
# at most five entries, in the left panel: T1, ideal, modes, virtual
entries = ', NaN with linespoints ls 1 title "DP", NaN with linespoints ls 2 title "DDP"'
virtual_entry = ', NaN with linespoints ls 23 title "hollow: virtual"'

letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

# --- figures -------------------------------------------------------------------------------------------------------

do for [m = 0:model_count - 1] {
    model = model_at(m)
    n_ticks = ""; n_most = 1; t1_ms = 0; y_most = 0; s_most = 0; batch = 0; runs = 0; steps = 0; is_weak = 0
    any_shared = 0; any_alone = 0; any_virtual = 0
    set table $ignored
    plot csv using (is_mode("DP") || is_mode("DDP") ? look(column("n")) : 0):(0) with table
    if (has_virtual) {
        plot virtual_csv using (is_mode("DP") || is_mode("DDP") ? look_at_virtual(column("n")) : 0):(0) with table
    }
    unset table
    name = ""
    do for [i = 1:strlen(model)] { name = name . (strstrt(letters, model[i:i]) ? model[i:i] : "_") }
    file = folder . "/dp_vs_ddp_" . name
    headline = m < answers ? without_rest(answer[m + 1]) : ""
    if (headline eq "") { headline = model . ": step time and speed-up" }
    how = sprintf("%d samples per step on every %s; measured on %s: %d runs of %d steps, bars from the fastest to the slowest", \
        int(batch), is_weak ? "device" : "N", machine, int(runs), int(steps))
    how = how . (any_virtual ? sprintf("\nhollow: virtual, a core for each device, replayed from %d runs of %d steps on one core, over a virtual T1", \
        int(virtual_runs), int(virtual_steps)) : "")
    how = how . (any_shared ? (any_virtual ? "; " : "\n") . "crosses: more devices than cores, only time-slicing" : "")

    do for [kind in "png svg"] {
        if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
        set multiplot layout 1,2 margins 0.065,0.985,0.135,0.82 spacing 0.075 title headline font title_font noenhanced
        set label 1 how at screen 0.5,0.905 center noenhanced font small_font
        ideal_to = n_most > 1 ? n_most : 1.001 # an empty range would be an error
        set xlabel "N, devices"
        set xrange [1 - 0.06 * n_most:1.05 * n_most]
        eval "set xtics (" . n_ticks[2:*] . ")"

        set ylabel "step time [ms]"
        set yrange [0:(y_most > t1_ms ? y_most : t1_ms) * 1.3]
        set key top right maxrows 2 width -1 samplen 2
        eval 'plot sample [1 - 0.06 * n_most:1.05 * n_most] "+" using 1:(t1_ms > 0 ? t1_ms : NaN) with lines ls 4 title "T1", [1:ideal_to] "+" using 1:(t1_ms > 0 ? t1_ms / (is_weak ? 1 : $1) : NaN) with lines ls 3 title (is_weak ? "ideal: T1" : "ideal: T1 / N")' \
            . entries . (any_virtual ? virtual_entry : "") . curves("step_ms")

        unset label 1
        set ylabel (is_weak ? "speed-up N T1/T_N" : "speed-up T1/T_N")
        set yrange [0:(s_most > n_most ? s_most : n_most) * 1.1]
        set key off
        eval 'plot sample [1 - 0.06 * n_most:1.05 * n_most] "+" using 1:(1) with lines ls 4 notitle, [1:ideal_to] "+" using 1:1 with lines ls 3 notitle' . curves("speedup")
        set key on
        unset multiplot
        unset output
    }
    print file . ".png"
}
