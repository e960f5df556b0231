# A step of device 0 by phase, DP next to DDP, from the CSV that `build/replay --out` writes:
#     gnuplot -c plots/replay_phases.gp build/results/replay_devices.csv build/results
# writes build/results/replay_phases.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/replay_devices.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "build/replay --node NODE --workload NAME --batch SAMPLES --out build/results"
load "plots/read.gp"
csv = "$csv"
file = folder . "/replay_phases"

# --- contents of the file -----------------------------------------------------------------------------------------

column_of(phase) = phase eq "all-reduce" ? "phase_all_reduce_ms" : "phase_" . phase . "_ms"
part(i)          = column(column_of(word(phases, i)))
up_to(i)         = i == 0 ? 0 : up_to(i - 1) + part(i)

ns = ""; cap = NaN; y_most = 0; used = ""; weak = 0; batch = -1; 
has(texts, text) = strstrt(" " . texts . " ", " " . text . " ") > 0
# If the file has several bucket sizes, the first is plotted.
is_shown(mode)   = mode ne "DP by collectives" && stringcolumn("device") eq "0" && (mode ne "DDP" || column("bucket_cap_mb") == cap) && (mode ne "single" || column("n") == 1)
note(mode, n) = ( \
    cap = mode eq "DDP" && cap != cap ? column("bucket_cap_mb") : cap, \
    ns = mode ne "single" && !has(ns, sprintf("%d", n)) ? ns . sprintf(" %d", n) : ns, \
    weak = mode ne "single" && batch > 0 && column("batch") != batch ? 1 : weak, \
    batch = mode ne "single" ? column("batch") : batch, share = column("per_device_batch"), \
    y_most = is_shown(mode) && column("step_ms") > y_most ? column("step_ms") : y_most, \
    model = stringcolumn("model"), node = stringcolumn("node"), precision = stringcolumn("precision"), lock = column("host_lock_us"), 0)
set table $ignored
plot csv using (note(stringcolumn("mode"), column("n"))):(0) with table
do for [i = 1:words(phases)] {
    most = 0
    plot csv using (most = is_shown(stringcolumn("mode")) && part(i) > most ? part(i) : most):(0) with table
    if (most > 1e-4 * y_most) { used = used . sprintf(" %d", i) }
}
unset table
lock_text = lock > 0 ? sprintf(", a host lock of %g us per launch in every mode", lock) : ""

# --- bars ---------------------------------------------------------------------------------------------------------

place(n)  = sum [i = 1:words(ns)] (int(word(ns, i)) == n ? i : 0)
x_of(mode) = mode eq "single" ? 0 : place(column("n")) + (mode eq "DP" ? -0.21 : 0.21)
x_shown(mode) = is_shown(mode) ? x_of(mode) : NaN
half_width = 0.19
bars = ""
do for [k = 1:words(used)] {
    i = int(word(used, k))
    bars = bars . sprintf('%s csv using (x_shown(stringcolumn("mode"))):(0):(x_shown(stringcolumn("mode")) - half_width):(x_shown(stringcolumn("mode")) + half_width):(up_to(%d)):(up_to(%d)) with boxxyerror fs solid 1 border lc rgb "white" fc rgb "%s" title "%s"', \
        bars eq "" ? "" : ",", i - 1, i, word(phase_colors, i), word(phases, i))
}
tics = '"one device" 0'
do for [i = 1:words(ns)] { tics = tics . sprintf(', "N = %s" %d', word(ns, i), i) }
digits(ms)    = ms < 1000 ? sprintf("%.3g", ms) : sprintf("%.0f", ms)
text_of(mode) = sprintf("%s\n%s", mode eq "single" ? "" : mode, digits(column("step_ms")))

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1500, 800) } else { eval open_svg(file, 1500, 800) }
    set multiplot layout 1,1 margins 0.085,0.865,0.08,0.87 \
        title sprintf("A step of device 0 by phase: %s, %d samples per step on %s", model, weak ? share : batch, weak ? "each device" : "every N") font title_font noenhanced
    set label 1 sprintf("replayed on %s (figures from its file)%s, %s", node, lock_text, precision) at screen 0.5,0.92 center noenhanced
    set xrange [-0.5:words(ns) + 0.55]
    set yrange [0:y_most * 1.16]
    eval "set xtics (" . tics . ") scale 0"
    set ylabel "step time [ms]"
    set key at screen 0.995,0.85 right top vertical maxrows 20 invert samplen 1.2 spacing 1.25 noenhanced reverse Left width -1
    eval 'plot ' . bars . ', csv using (x_shown(stringcolumn("mode"))):(column("step_ms")):(text_of(stringcolumn("mode"))) with labels offset 0,1.5 notitle'
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
