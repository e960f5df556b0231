# T_N with the laws fitted to it, and the residuals of each, from the CSV that `build/fit_tn --plot` writes:
#     gnuplot -c plots/tn_fit.gp build/results/tn_fit.csv build/results
# writes build/results/tn_fit.png and .svg, named after the CSV.

csv    = ARGC >= 1 ? ARG1 : "build/results/tn_fit.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
name = csv
do for [i = strlen(csv):1:-1] { if (csv[i:i] eq "/") { name = csv[i + 1:*]; break } }
file = folder . "/" . (strlen(name) > 4 && name[strlen(name) - 3:*] eq ".csv" ? name[1:strlen(name) - 4] : name)
path = csv; block = "csv"; source = "build/fit_tn --csv build/results/dp_vs_ddp.csv --plot build/results/tn_fit.png"
load "plots/read.gp"
csv = "$csv"

# --- contents of the file -----------------------------------------------------------------------------------------

laws = " "       # best first
n_ticks = ","; n_most = 1; n_points = 1; y_least = 1e300; y_most = 0; y_first = NaN; y_last = NaN; r_most = 0; what = ""; how = ""; scaling = ""; doubts = ""
note(law, kind, n, ms, residual) = ( \
    laws = strstrt(laws, " " . law . " ") ? laws : laws . law . " ", \
    n_most = n > n_most ? n : n_most, \
    n_points = kind eq "point" && n > n_points ? n : n_points, \
    y_counts = kind eq "point" || (kind eq "prediction" && law eq word(laws, 1)), \
    y_least = ms < y_least && ms > 0 && y_counts ? ms : y_least, \
    y_most = ms > y_most && y_counts ? ms : y_most, \
    y_first = y_counts && n == 1 ? ms : y_first, \
    y_last = y_counts && n == n_most ? ms : y_last, \
    r_most = kind eq "point" && law ne "free" && abs(residual) > r_most ? abs(residual) : r_most, \
    n_ticks = kind eq "curve" || strstrt(n_ticks, sprintf(",%d,", n)) ? n_ticks : n_ticks . sprintf("%d,", n), \
    what = stringcolumn("what"), how = stringcolumn("how"), scaling = stringcolumn("scaling"), doubts = stringcolumn("doubts"), 0)
set table $ignored
plot csv using (note(stringcolumn("law"), stringcolumn("kind"), column("n"), column("step_ms"), \
                     stringcolumn("kind") eq "point" ? column("residual_ms") : 0)):(0) with table
unset table
best = word(laws, 1)

# --- curves -------------------------------------------------------------------------------------------------------

is_of(law, kind)   = stringcolumn("law") eq law && stringcolumn("kind") eq kind
n_of(law, kind)    = is_of(law, kind) ? column("n") : NaN
# A law's colour, in the order of fit.h, the same in every picture; residuals are side by side.
order(law)         = strstrt("free constant ring linear logarithm Amdahl", law)
color_of(law)      = order(law) == 1 ? color_ideal : order(law) == 6 ? "#009E73" : order(law) == 15 ? "#CC79A7" : \
                     order(law) == 20 ? "#E69F00" : order(law) == 27 ? "#56B4E9" : "#6A3D9A"
width_of(law)      = law eq best ? 3.5 : 1.6
dash_of(law)       = law eq best ? "solid" : law eq "free" ? "(8,6)" : "(12,4)"
# A law with an objection is not called chosen.
best_text          = doubts eq "" ? " (chosen)" : " (best of the laws)"
title_of(law)      = (law eq "free" ? (scaling eq "weak" ? "T1 alone" : "T1 / N alone") : law) . (law eq best ? best_text : "")

curves = ""
do for [i = words(laws):1:-1] { # the chosen one is plotted last, above the others
    curves = curves . sprintf('%s csv using (n_of("%s", "curve")):(column("step_ms")) with lines lw %g lc rgb "%s" dt %s title title_of("%s")', \
        curves eq "" ? "" : ",", word(laws, i), width_of(word(laws, i)), color_of(word(laws, i)), dash_of(word(laws, i)), word(laws, i))
}
is_shown(law) = law ne "free" || best eq "free"
shown = words(laws) - (is_shown("free") ? 0 : 1)
place = 0
shift(i) = 1.055 ** (i - (shown + 1) / 2.0)
residuals = ""
do for [i = 1:words(laws)] {
    if (is_shown(word(laws, i))) {
        place = place + 1
        residuals = residuals . sprintf(', csv using (n_of("%s", "point") * shift(%d)):(column("residual_ms")) with impulses lw %g lc rgb "%s" notitle', \
            word(laws, i), place, word(laws, i) eq best ? 4 : 2, color_of(word(laws, i)))
        residuals = residuals . sprintf(', csv using (n_of("%s", "point") * shift(%d)):(column("residual_ms")) with points pt %d ps 0.9 lc rgb "%s" notitle', \
            word(laws, i), place, word(laws, i) eq best ? 7 : 6, color_of(word(laws, i)))
    }
}
# 1, 2, 5, 10, ... for the logarithmic axis; a range below a factor of ten has all integers
y_ticks = ""
digits = y_most < 6 * y_least ? "1 2 3 4 5 6 7 8 9" : "1 2 5"
do for [power = -6:8] { do for [digit in digits] { y_ticks = y_ticks . sprintf(",%s", digit) . sprintf("e%d", power) } }
any_prediction = n_most > n_points
words_of_how = strstrt(how, "replayed") == 1 ? "replayed" : strstrt(how, "virtual") == 1 ? "virtual" : strstrt(how, "measured") == 1 ? "measured" : "given"

# --- the figure ---------------------------------------------------------------------------------------------------

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1400, 1000) } else { eval open_svg(file, 1400, 1000) }
    set multiplot title "T_N = " . (scaling eq "weak" ? "T1" : "T1 / N") . " + Tcomm(N): " . what font title_font noenhanced
    set label 1 how at screen 0.5,0.945 center noenhanced
    set label 3 doubts at screen 0.5,0.915 center noenhanced tc rgb "#C00000"
    set logscale x 2
    set xrange [0.86:n_most * 1.16]
    eval "set xtics (" . n_ticks[2:strlen(n_ticks) - 1] . ")"
    set lmargin at screen 0.1
    set rmargin at screen 0.985

    set tmargin at screen 0.89
    set bmargin at screen 0.44
    set grid xtics ytics lc rgb color_grid lw 1 dt 1
    if (scaling ne "weak") { set logscale y; eval "set ytics (" . y_ticks[2:*] . ")" }
    set ylabel "step time [ms]"
    if (scaling eq "weak") { set yrange [0:y_most * 1.25] } else { set yrange [y_least * 0.7:y_most * 1.25] }
    set key bottom left reverse Left samplen 3 spacing 1.15 noenhanced # where no curve passes, rising or falling
    if (scaling eq "weak") { set key bottom right } else {
        if (y_last < 0.4 * y_first) { set key top right }
        if (y_last >= y_most && y_last > y_first) { set key top left }
    }
    eval "plot " . curves . \
        ', csv using (n_of(best, "point")):(column("step_ms")) with points pt 7 ps 1.6 lc rgb "black" title words_of_how . " T_N"' . \
        (any_prediction ? ', csv using (n_of(best, "prediction")):(column("step_ms")) with points pt 6 ps 1.6 lw 2 lc rgb "black" title "predicted by the " . (doubts eq "" ? "chosen" : "best") . " law"' : "") . \
        ', csv using (n_of(best, "point")):(column("step_ms")):(sprintf("%.3g", column("step_ms"))) with labels left offset 1,0.6 font small_font notitle'

    unset label 1
    unset label 3
    unset logscale y
    set ytics auto
    set tmargin at screen 0.355
    set bmargin at screen 0.085
    eval "set xtics (" . n_ticks[2:strlen(n_ticks) - 1] . ")"
    set xlabel "N, devices"
    set ylabel "residual [ms]"
    r_most = r_most > 0 ? r_most : 1
    set yrange [-1.25 * r_most:1.25 * r_most]
    set key off
    set label 2 words_of_how . " - law, side by side for each N" . (is_shown("free") ? "" : " (T1 / N alone is left out)") at graph 0,1.09 noenhanced
    eval 'plot 0 with lines lc rgb "black" lw 1 notitle' . residuals
    unset label 2
    unset multiplot
    unset output
    unset logscale
}
print file . ".png"
print file . ".svg"
