# What the course's scripts say to a student, in English and in Chinese; conf.sh sources it. LS_LANG: empty or en...: English; zh...: Chinese.
# What is for programs (grade.json, class.csv, what course-check reads) is English in any case.
case ${LS_LANG:-} in
'' | en*) language=en ;;
zh*) language=zh ;;
*)
    echo "LS_LANG is '$LS_LANG': this is English; LS_LANG=zh is Chinese" >&2
    language=en
    export LS_LANG=en # so that it is said once
    ;;
esac

# words_in LANGUAGE KEY ARGUMENT...: what the key says, without an end of line. The table: a key, and formats for printf.
words_in() {
    words_language=$1 words_key=$2
    shift 2
    case $words_key in
    # every script
    no-lab) en="there is no lab '%s'; there are: %s" zh='没有实验 %s；现有：%s' ;;
    not-built) en='%s is not built: make' zh='%s 还没有编译：请运行 make' ;;
    # build.sh: why code is not run
    before-main) en='%s has code that runs before main' zh='%s 里有在 main 之前运行的代码' ;;
    system-calls) en='%s makes system calls of its own' zh='%s 里有直接的系统调用' ;;
    calls-others) en='it calls %s, which a solution has no need of' zh='代码调用了 %s，解答不需要它' ;;
    defines-others) en='it defines %s, which the course itself uses' zh='代码定义了 %s，而这个名字课程自己要用' ;;
    others-code) en="%s has another's code in it: %s" zh='%s 里有别人的代码：%s' ;;
    file-missing) en='%s is missing' zh='缺少文件 %s' ;;
    no-compile) en='it does not compile: %s' zh='编译失败：%s' ;;
    no-link) en='it does not link' zh='链接失败' ;;
    no-link-programs) en='its programs do not link' zh='本实验的程序链接失败' ;;
    no-link-asan) en='it does not link under AddressSanitizer' zh='用 AddressSanitizer 编译时链接失败' ;;
    # grade.sh, class.sh
    no-reference) en='lab %s: its reference does not build' zh='实验 %s：参考实现编译失败' ;;
    no-folder) en="there is no folder '%s'" zh='没有文件夹 %s' ;;
    student-points) en='%3d of %3d points  %s' zh='%3d/%3d 分  %s' ;;
    # lab.sh: the session
    session) en='lab %s, %s (%s/README.md)' zh='实验 %s，%s（%s/README.zh.md）' ;;
    not-predicted) en='Not predicted yet:%s. Write a line "NAME: what you expect, and why" for each into %s, and come back; or PREDICT=skip.' \
        zh='还没有预测：%s。请在 %s 里为每一项写一行“名字: 你的预测和理由”，然后再来；也可以用 PREDICT=skip 跳过。' ;;
    reference-runs) en='Not all of it is written yet: what runs is the reference.' zh='代码还没有写全：下面运行的是参考实现。' ;;
    run-failed) en='this run failed' zh='这次运行失败了' ;;
    status-comment) en='exit status' zh='退出码' ;;
    # the columns of 18 and 22 places, as they look: a Chinese character takes two
    compare) en='                   it is                    you predicted' zh='                   实际                     你的预测' ;;
    # report.sh
    too-large) en='%s has more than 4 MB: that is no code of this course' zh='%s 超过 4 MB：这不是本课程的代码' ;;
    answers-new) en='%s is new: write your answers there, below the questions, and come back' zh='已新建 %s：请把答案写在各个问题下面，然后重新运行' ;;
    nothing-begun) en='nothing to report: no lab is begun there; labs/README.md says how to begin one' \
        zh='报告没有内容：还没有开始任何实验；怎样开始，见 labs/README.zh.md' ;;
    # figures.sh
    figure-failed) en='%s: figure %s: the command failed, or printed nothing: %s' zh='%s：数字 %s：命令失败，或没有输出：%s' ;;
    figure-no-place) en='%s has no place for figure %s' zh='%s 里没有数字 %s 的位置' ;;
    figure-other) en='%s: figure %s is %s here: make lab-figures' zh='%s：数字 %s 在这台机器上是 %s：请运行 make lab-figures' ;;
    *) en="labs/course/words.sh has no '$words_key'" zh=$en ;;
    esac
    # shellcheck disable=SC2059
    case $words_language in zh) printf "$zh" "$@" ;; *) printf "$en" "$@" ;; esac
}

# The same in the student's language, as a line.
words() {
    words_in "$language" "$@"
    echo
}
