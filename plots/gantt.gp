# One step as bars: a row per lane (a host thread, or a stream of a device) with a visible bar, coloured by phase, followed by the lane's busy
# time; a panel per mode on one time axis, with the step's time; from the CSV that `build/replay --gantt` writes:
#     build/replay --node NODE --workload NAME --batch SAMPLES --n 4 --gantt FOLDER/gantt.csv
#     gnuplot -c plots/gantt.gp FOLDER/gantt.csv FOLDER
# writes FOLDER/gantt.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/gantt.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "build/replay --node NODE --workload NAME --batch SAMPLES --n 4 --gantt build/results/gantt.csv"
load "plots/read.gp"
csv = "$csv"
file = folder . "/gantt"

# --- contents of the file -----------------------------------------------------------------------------------------

lanes_of = "host compute copy comm"
modes = ""; t_most = 0; used = ""; on = ""; any_pale = 0
# A kind of bar: a phase of the step that is shown (1) or of a different one (0).
kind_of(step) = sprintf("%d%s", step == column("shown_step"), stringcolumn("phase"))
has(texts, text) = strstrt(" " . texts . " ", " " . text . " ") > 0
note(mode, phase) = ( \
    modes = has(modes, mode) ? modes : modes . " " . mode, \
    any_pale = any_pale || column("step") != column("shown_step"), \
    t_most = column("end_ms") > t_most ? column("end_ms") : t_most, \
    n = column("n"), on = stringcolumn("on"), 0)
set table $ignored
plot csv using (note(stringcolumn("mode"), stringcolumn("phase"))):(0) with table
# The legend has the phases with a bar of at least a pixel.
plot csv using (used = has(used, stringcolumn("phase")) || column("end_ms") - column("start_ms") < t_most / 1200 ? used : used . " " . stringcolumn("phase")):(0) with table
unset table

# A row for every lane whose bars together are at least a pixel long: device by device, and within a device host, compute,
# copy, comm.
key_of(device, lane) = sprintf("%d%s", device, lane)
number_in(texts, text) = sum [i = 1:words(texts)] (word(texts, i) eq text ? i : 0)
mode_number(dummy) = number_in(modes, stringcolumn("mode"))
lane_number(m, d, k) = ((m - 1) * int(n) + d) * 4 + k
# The busy time of every lane, by one pass: a pass of gnuplot takes longer than all else.
array busy_of[words(modes) * int(n) * 4]
do for [i = 1:|busy_of|] { busy_of[i] = 0 }
add_busy(i) = (busy_of[i] = busy_of[i] + column("end_ms") - column("start_ms"), 0)
set table $ignored
plot csv using (add_busy(lane_number(mode_number(0), column("device"), number_in(lanes_of, stringcolumn("lane"))))):(0) with table
unset table
ms_text(ms) = sprintf(ms < 99.95 ? "%.1f" : "%.0f", ms)
do for [m = 1:words(modes)] {
    had = ""; ends_at = 0
    set table $ignored
    plot csv using (had = stringcolumn("mode") eq word(modes, m) && !has(had, kind_of(column("step"))) ? had . " " . kind_of(column("step")) : had):(0) with table
    plot csv using (ends_at = stringcolumn("mode") eq word(modes, m) && column("end_ms") > ends_at ? column("end_ms") : ends_at):(0) with table
    unset table
    rows = ""; tics = ""; device_ends = ""; busy = ""
    do for [d = 0:int(n) - 1] { do for [k = 1:4] {
        lane = word(lanes_of, k)
        busy_ms = busy_of[lane_number(m, d, k)]
        if (busy_ms >= t_most / 1200) {
            busy = busy . " " . ms_text(busy_ms)
            tics = tics . sprintf('%s"%d  %s" %d', rows eq "" ? "" : ", ", d, lane, -words(rows) - 1)
            rows = rows . " " . key_of(d, lane)
        }
    }
        device_ends = device_ends . sprintf(" %g", -words(rows) - 0.5)
    }
    eval sprintf('rows_%d = rows; tics_%d = tics; ends_%d = device_ends; had_%d = had; busy_%d = busy; ends_at_%d = ends_at', m, m, m, m, m, m)
}
rows_at(m) = value(sprintf("rows_%d", m))
# The row of every bar, counted from 1 within its mode; 0: none.
array row_of_bar[line_count]
set_row(bar, row) = (row_of_bar[bar] = row, 0)
set table $ignored
plot csv using (set_row($0 + 1, number_in(rows_at(mode_number(0)), key_of(column("device"), stringcolumn("lane"))))):(0) with table
unset table
row(dummy) = -row_of_bar[$0 + 1]

# --- bars ---------------------------------------------------------------------------------------------------------

shown = ""
do for [i = 1:words(phases)] { if (has(used, word(phases, i))) { shown = shown . " " . word(phases, i) } }
mid(kind, m) = stringcolumn("mode") eq word(modes, m) && kind_of(column("step")) eq kind ? (column("start_ms") + column("end_ms")) / 2 : NaN
all_rows = words(rows_at(1)) + (words(modes) > 1 ? words(rows_at(2)) : 0)
height = 205 + 26 * all_rows

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, height) } else { eval open_svg(file, 1600, height) }
    set multiplot title sprintf("One step on %d devices: %s", n, words(modes) > 1 ? word(modes, 1) . " and " . word(modes, 2) : word(modes, 1)) font title_font noenhanced
    set label 1 on at screen 0.5,1 - 55.0 / height center noenhanced
    if (any_pale) { set label 3 "pale: what belongs to another step; host threads run ahead of their devices" at screen 0.5,1 - 80.0 / height center noenhanced }
    unset key # it cannot be higher than a panel, so the phases' names are labels
    do for [i = 1:words(shown)] {
        y = 1 - (95.0 + 27 * i) / height
        set object i rectangle from screen 0.888,screen y - 7.0 / height to screen 0.904,screen y + 7.0 / height fs solid 1 noborder fc rgb phase_color(word(shown, i))
        set label 10 + i word(shown, i) at screen 0.911,screen y left noenhanced
    }
    top = 1 - 95.0 / height
    gap = 30.0 / height
    room = top - 80.0 / height - gap * (words(modes) - 1) # for all rows
    unset grid
    set grid xtics lc rgb color_grid lw 1 dt 1
    set xrange [0:t_most * 1.005]
    set lmargin at screen 0.115
    set rmargin at screen 0.825
    do for [m = 1:words(modes)] {
        share = room * words(rows_at(m)) / all_rows
        set tmargin at screen top
        set bmargin at screen top - share
        top = top - share - gap
        eval "set ytics (" . value(sprintf("tics_%d", m)) . ") scale 0"
        set yrange [-words(rows_at(m)) - 0.6:-0.4]
        do for [i = 1:words(value(sprintf("ends_%d", m))) - 1] {
            y = real(word(value(sprintf("ends_%d", m)), i))
            set arrow i from graph 0,first y to graph 1,first y nohead lc rgb color_grid lw 1 back
        }
        end_ms = value(sprintf("ends_at_%d", m))
        set arrow 100 from first end_ms,graph 0 to first end_ms,graph 1 nohead lw 1.5 dt (6,4) lc rgb "black" front
        set label 2 word(modes, m) . ": " . ms_text(end_ms) . " ms" at screen 0.012,graph 0.5 center rotate by 90 font title_font
        set label 4 "busy [ms]" at screen 0.87,graph 1 right offset 0,0.7 font small_font
        do for [i = 1:words(rows_at(m))] {
            set label 40 + i word(value(sprintf("busy_%d", m)), i) at screen 0.87,first -i right font small_font
        }
        if (m == words(modes)) { set xlabel "time in the step [ms]"; set format x "%g" } else { unset xlabel; set format x "" }
        there = value(sprintf("had_%d", m))
        plot for [i = 1:words(there)] csv using (mid(word(there, i), m)):(row(0)):"start_ms":"end_ms":(row(0) - 0.38):(row(0) + 0.38) \
                with boxxyerror fs solid (word(there, i)[1:1] eq "1" ? 1.0 : 0.3) noborder fc rgb phase_color(word(there, i)[2:*]) notitle
        unset label
        unset object
        unset arrow
    }
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
