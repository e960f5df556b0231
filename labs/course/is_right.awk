# Compares a prediction with the result: exit status 0 if right, or 1.
# usage: MINE=PREDICTION IS=RESULT awk -f labs/course/is_right.awk
#
# A number must be right in all of its digits, at least two: 2.3 is right for 2.30974, and 84 for 83.8; but 2 is not.
# "About" before it and a unit after it are ignored. Words may be Chinese (the table below). After either, a comma, a
# semicolon, a colon, "=" or "because" may begin a reason ("4, each rank sends once"), but no second answer: "19, 20"
# and "yes, no" are wrong.
# Several answers count only if the result is a list: "scatter and gather" and "2 and 4" in any order, "3 3 3 0" only in
# this order.

# A line has the answers to one question; the forms of one answer are separated by slashes.
function fill_table(    rows, count, answers, forms, i, j, k, n, m) {
    count = split("yes/是/是的/会/能/有|no/否/不是/不/不会/不能/没有|" \
        "\nsame/unchanged/identical/equal/same bits/same weights/相同/一样/不变|others/other/other ones/another/another one/different/changed/不同/不一样" \
        "\nrises/rise/up/上升/升高|falls/fall/down/下降/降低" \
        "\nwith/with set_epoch/with it/调用/有调用|without/without set_epoch/without it/不调用/没有调用" \
        "\nhang/hangs/卡住/挂起|wrong numbers/结果错误|error/errors/报错/出错" \
        "\nkilled/被杀死/杀死|stopped/被暂停/暂停|both/both of them/两种都是/两种/两者" \
        "\nring/环/环形|tree/树/树形" \
        "\nproducts/矩阵乘/矩阵乘法|memory/内存/显存|links/链路|all-reduce/all-reduces|launch/launches/下发" \
        "\ninitial|active" \
        "\nscatter|replicate|gather|reduce", rows, "\n")
    for (i = 1; i <= count; i++) {
        n = split(rows[i], answers, "|")
        for (j = 1; j <= n; j++) {
            m = split(answers[j], forms, "/")
            for (k = 1; k <= m; k++) if (forms[k] != "") { meaning[forms[k]] = forms[1]; question[forms[k]] = i }
        }
    }
}

function clean(text) {
    text = tolower(text)
    gsub(/，|、/, ", ", text)
    gsub(/；/, "; ", text)
    gsub(/：/, ": ", text)
    gsub(/＝/, " = ", text)
    gsub(/。/, ". ", text)
    gsub(/（/, " (", text)
    gsub(/）/, ")", text)
    gsub(/——|—/, " - ", text)
    gsub(/和|与|及/, " and ", text)
    gsub(/或者|或/, " or ", text)
    gsub(/[ \t\r\n]+/, " ", text)
    gsub(/^ | $/, "", text)
    while (match(text, /[0-9],[0-9][0-9][0-9]/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
    return text
}

# Whether nothing follows, or a possible reason.
function is_reason(rest) {
    return rest ~ /^[.!)]*$/ || rest ~ /^\.? ?[(,;:=]/ || rest ~ /^\. / || rest ~ /^ -+ / || rest ~ /^ (because|since|as|for|so) / ||
        rest ~ /^ ?(因|由于|由|所以|理由)/
}

# The text after the separator, and after "or", "maybe" and the like.
function behind_separator(rest) {
    sub(/^ ?[.(,;:=-]+ */, "", rest)
    sub(/^ +/, "", rest)
    while (sub(/^((or|and|maybe|perhaps|possibly|about) |也许|可能|大约|约)/, "", rest)) sub(/^ +/, "", rest)
    return rest
}

# --- numbers ---------------------------------------------------------------------------------------------------------------------

function starts_with_number(text) { return match(text, /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?/) }

# Takes a number and its unit from the start of `text`, which is global, into `digits` and `unit`.
function take_number(    before) {
    sub(/^(about|around|roughly|some|ca\.?|~|≈|约|大约|大概) */, "", text)
    if (!starts_with_number(text)) return 0
    digits = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH + 1)
    if (digits ~ /\.$/) { digits = substr(digits, 1, length(digits) - 1); text = "." text }
    before = text
    if (text !~ /^ ?(or|to|and|because|since|as|for|so)( |$)/) sub(/^ ?(%|[a-z]+(\/[a-z]+)?|毫秒|秒|个|步|次|条|倍|字节)/, "", text)
    unit = substr(before, 1, length(before) - length(text))
    return 1
}

# Whether a second number is given for the first one, of this unit: a number alone, or with a unit; not a sum or a
# sentence.
function has_other_number(rest, first, first_unit,    is_sum) {
    is_sum = rest ~ /^ ?=/
    rest = behind_separator(rest)
    if (!starts_with_number(rest)) return 0
    if (substr(rest, 1, RLENGTH) + 0 == first + 0) return 0
    rest = substr(rest, RLENGTH + 1)
    if (first_unit != "" && index(rest, first_unit) == 1) rest = substr(rest, length(first_unit) + 1)
    else if (rest ~ /^ ?(%|ms|us|s|bytes?|[kmg]i?b)([^a-z]|$)/) sub(/^ ?(%|[a-z]+)/, "", rest)
    else sub(/^ ?(毫秒|秒|个|步|次|条|倍|字节)/, "", rest)
    return rest ~ /^ ?[.!?)]*$/ || rest ~ /^ ?[,;] ?/ || rest ~ /^\. / || rest ~ /^ ?(or|because|since) / || rest ~ /^ ?因/ || (!is_sum && rest ~ /^ ?\(/)
}

function is_near(digits, is,    decimals, off, exponent) {
    if (digits + 0 == is + 0) return 1
    decimals = digits
    if (!sub(/^[^.]*\./, "", decimals)) decimals = ""
    sub(/e.*/, "", decimals)
    off = digits - is
    if (off < 0) off = -off
    exponent = digits # the value of the last digit follows from the exponent and the decimals
    if (!sub(/^[^e]*e/, "", exponent)) exponent = 0
    if (off > 0.5 * ("1e" (exponent - length(decimals))) * (1 + 1e-9)) return 0
    sub(/e.*/, "", digits)
    gsub(/[-+.]/, "", digits)
    sub(/^0+/, "", digits)
    return length(digits) >= 2
}

# RESULT: numbers between blanks, in this order, or with "and", in any order.
function numbers_are_right(mine, is,    any_order, wanted, count, i, j, used) {
    any_order = gsub(/ and /, " ", is)
    count = split(is, wanted, " ")
    text = mine
    if (match(text, /^[0-9.]+( ?[-+*x\/×] ?[0-9.]+)+ ?= ?/)) text = substr(text, RLENGTH + 1) # 0+1+2+3 = 6
    for (i = 1; i <= count; i++) {
        if (i > 1) sub(/^ *(,|;|\+|\/|and )? */, "", text)
        if (!take_number()) return 0
        for (j = any_order ? 1 : i; j <= (any_order ? count : i); j++) if (!used[j] && is_near(digits, wanted[j])) break
        if (j > (any_order ? count : i)) return 0
        used[j] = 1
    }
    return is_reason(text) && !(count == 1 && has_other_number(text, digits, unit)) && !(count > 1 && text !~ /^ ?=/ && has_other_number(text, "nan", unit))
}

# --- words -----------------------------------------------------------------------------------------------------------------------

# The longest form of an answer that `text`, which is global, starts with; removes it from `text`.
function take_word(    form, best) {
    sub(/^(it|they) /, "", text)
    sub(/^(is|are) /, "", text)
    sub(/^(a|an|the) /, "", text)
    best = ""
    for (form in meaning)
        if (index(text, form) == 1 && length(form) > length(best) && substr(text, length(form) + 1) !~ /^[-a-z0-9_]/) best = form
    text = substr(text, length(best) + 1)
    if (best ~ /[\200-\377]$/) sub(/^(的|了)/, "", text)
    return best
}

function words_are_right(mine, is,    wanted, count, i, given, given_count, first, word, rest) {
    count = split(is, wanted, / and /)
    for (i = 1; i <= count; i++) {
        sub(/^(a|an|the) /, "", wanted[i])
        if (!(wanted[i] in meaning)) { meaning[wanted[i]] = wanted[i]; question[wanted[i]] = 0 }
    }
    text = mine
    if ((first = take_word()) == "") return 0
    given[meaning[first]] = given_count = 1
    for (;;) {
        rest = text
        text = behind_separator(rest)
        if (text == rest || (word = take_word()) == "" || question[word] != question[first] ||
            !(is_reason(text) || text ~ /^ (and|or) /)) break
        if (!given[meaning[word]]++) given_count++
    }
    if (!is_reason(rest) || given_count != count) return 0
    for (i = 1; i <= count; i++) if (!given[meaning[wanted[i]]]) return 0
    return 1
}

BEGIN {
    mine = clean(ENVIRON["MINE"])
    is = clean(ENVIRON["IS"])
    if (is == "") exit 1
    if (is ~ /^[-+0-9.e]+(( and | )[-+0-9.e]+)*$/ && starts_with_number(is)) exit !numbers_are_right(mine, is)
    fill_table()
    exit !words_are_right(mine, is)
}
