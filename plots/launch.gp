# How long a job takes to start, form its group and end, over the number of ranks, from the CSV that `make bench-launch`
# writes:
#     gnuplot -c plots/launch.gp build/results/launch.csv build/results
# writes build/results/launch.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/launch.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "make bench-launch"; comma = " +"
load "plots/read.gp"
csv = "$csv"
file = folder . "/launch"

array launchers[3] = ["ddprun", "torchrun", "torchrun + PyTorch"]
array titles[3] = ["ddprun", "torchrun, the same program", "torchrun, PyTorch's gloo"]
array shown[3] = [0, 0, 0]
tics = ""; runs = 0; cores = 0; cpu = ""; most = 1
note(n) = (tics = strstrt(tics, sprintf('"%d"', n)) > 0 ? tics : tics . sprintf('%s"%d" %d', tics eq "" ? "" : ", ", n, n), \
    most = n > most ? n : most, runs = column("runs") > runs ? column("runs") : runs, cores = column("cores"), cpu = stringcolumn("cpu"), 0)
is_of(l) = stringcolumn("launcher") eq launchers[l]
see(l) = (shown[l] = shown[l] + (is_of(l) ? 1 : 0), 0)
set table $ignored
plot csv using (note(column("n"))):(see(1) + see(2) + see(3)) with table
unset table

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1000, 650) } else { eval open_svg(file, 1000, 650) }
    set title "A job that only meets: from the launcher's start to its end" font title_font offset 0,0.6
    set label 1 sprintf("%s, %d cores; measured: medians of %d run%s, bars from the least to the most", cpu, cores, runs, runs == 1 ? "" : "s") at screen 0.5,0.9 center noenhanced font small_font
    set tmargin at screen 0.87
    set logscale xy
    set xlabel "ranks"
    set ylabel "time [s]"
    set xrange [0.8:most * 1.25]
    eval "set xtics (" . tics . ")"
    set key outside bottom center horizontal
    plot for [l = 1:3] shown[l] > 0 ? csv : "$none" using (is_of(l) ? column("n") : NaN):"s":"s_min":"s_max" with yerrorlines ls l title titles[l]
    unset output
}
print file . ".png"
print file . ".svg"
