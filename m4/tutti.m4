# Ways to find what tutti uses. Each TUTTI_WITH_X offers --with-x=DIR|yes|no|check and sets tutti_have_x to
# yes or no and tutti_said_x to a line for the summary. Asked for and missing is an error that says what
# was looked for and where; `check` (the default) goes on without. Nothing is run, so cross builds work.

# TUTTI_MISSING(name, what was looked for and where, Debian package): the end of a search without success.
AC_DEFUN([TUTTI_MISSING], [
  tutti_have_$1=no
  tutti_said_$1="no ($2 not found)"
  AS_CASE([$with_$1],
    [no], [tutti_said_$1="no (--without-$1)"],
    [check], [],
    [AC_MSG_ERROR([--with-$1=$with_$1 was asked for, but $2 was not found; Debian and Ubuntu have it in package $3])])
])

# TUTTI_TRY_LINK(name, flags, libs, includes, body): compiles and links one program with these flags.
AC_DEFUN([TUTTI_TRY_LINK], [
  tutti_saved_CPPFLAGS=$CPPFLAGS tutti_saved_LIBS=$LIBS
  CPPFLAGS="$2 $CPPFLAGS" LIBS="$3 $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([$4], [$5])], [$1=yes], [$1=no])
  CPPFLAGS=$tutti_saved_CPPFLAGS LIBS=$tutti_saved_LIBS
])

# TUTTI_WITH_LIBRARY(name, pkg-config module, least version, library flags, header, body, Debian package)
# In DIR the header lies in DIR/include and the library in DIR/lib or DIR/lib64. Sets NAME_CPPFLAGS (with -DTUTTI_WITH_NAME)
# and NAME_LIBS.
AC_DEFUN([TUTTI_WITH_LIBRARY], [
  m4_pushdef([NAME], m4_toupper([$1]))
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=DIR|yes|no|check], [use $1 >= $3 @<:@check@:>@])],
    [], [with_$1=check])
  tutti_have_$1=no tutti_flags= tutti_libs=
  AS_CASE([$with_$1],
    [no], [tutti_where="(not looked for)"],
    [yes|check], [
      tutti_where="$2.pc (pkg-config, least version $3) and <$5> with $4"
      AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$2 >= $3" 2>/dev/null],
        [tutti_flags=`$PKG_CONFIG --cflags $2` tutti_libs=`$PKG_CONFIG --libs $2`
         tutti_have_$1=try],
        [test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$2" 2>/dev/null],
        [tutti_where="$1 >= $3 (there is `$PKG_CONFIG --modversion $2`)"],
        [tutti_libs="$4" tutti_have_$1=try])],
    [
      tutti_where="$with_$1/include/$5 (version $3 or later) with $4 in $with_$1/lib or $with_$1/lib64"
      AS_IF([test -r "$with_$1/include/$5"], [
        tutti_flags="-I$with_$1/include" tutti_have_$1=try
        AS_IF([test -d "$with_$1/lib64"], [tutti_libs="-L$with_$1/lib64 "])
        AS_IF([test -d "$with_$1/lib"], [tutti_libs="$tutti_libs-L$with_$1/lib "])
        tutti_libs="$tutti_libs$4"])])
  AS_IF([test "$tutti_have_$1" = try], [
    AC_MSG_CHECKING([for $1 >= $3])
    TUTTI_TRY_LINK([tutti_have_$1], [$tutti_flags], [$tutti_libs], [[#include <$5>]], [$6])
    AC_MSG_RESULT([$tutti_have_$1])])
  AS_IF([test "$tutti_have_$1" = yes], [
    NAME[]_CPPFLAGS="-DTUTTI_WITH_[]NAME $tutti_flags" NAME[]_LIBS=$tutti_libs
    tutti_said_$1=yes
    AS_CASE([$with_$1], [yes|check], [], [tutti_said_$1="yes ($with_$1)"])],
    [TUTTI_MISSING([$1], [$tutti_where], [$7])])
  AC_SUBST(NAME[_CPPFLAGS])
  AC_SUBST(NAME[_LIBS])
  AM_CONDITIONAL([WITH_]NAME, [test "$tutti_have_$1" = yes])
  m4_popdef([NAME])
])

# TUTTI_MPI_WRAPPER(wrapper): takes tutti_mpi_cppflags and tutti_mpi_libs from what the compiler wrapper says
# of itself: Open MPI by --showme, MPICH and its descendants by -compile_info and -link_info or -show.
AC_DEFUN([TUTTI_MPI_WRAPPER], [
  AS_IF([tutti_compile=`$1 --showme:compile 2>/dev/null`], [tutti_link=`$1 --showme:link 2>/dev/null`],
    [tutti_compile=`$1 -compile_info 2>/dev/null`], [tutti_link=`$1 -link_info 2>/dev/null`],
    [tutti_compile=`$1 -show 2>/dev/null` && tutti_link=$tutti_compile])
  tutti_mpi_cppflags= tutti_mpi_libs=
  for tutti_word in $tutti_compile; do
    AS_CASE([$tutti_word], [-I*|-D*], [tutti_mpi_cppflags="${tutti_mpi_cppflags:+$tutti_mpi_cppflags }$tutti_word"])
  done
  # -Wl,-rpath and -Wl,DIR may be two words; alone, the first takes what follows it for the folder.
  tutti_before=
  for tutti_word in $tutti_link; do
    AS_CASE([$tutti_before$tutti_word], [-L*|-l*|-Wl,-rpath*|-Wl,--enable-new-dtags],
      [tutti_mpi_libs="${tutti_mpi_libs:+$tutti_mpi_libs }$tutti_word"])
    AS_CASE([$tutti_word], [-Wl,-rpath], [tutti_before=-Wl,-rpath], [tutti_before=])
  done
])

# TUTTI_WITH_MPI: sets MPI_CPPFLAGS, MPI_LIBS, and for tests MPICC, MPIFC, MPIEXEC (empty when not found) and
# MPI_FLAVOR (openmpi, mpich or other). DIR is an installation (DIR/bin/mpicc), a wrapper itself
# (/usr/bin/mpicc.mpich), or a folder of Debian's layout for several MPIs (/usr/lib/ARCH/mpich).
AC_DEFUN([TUTTI_WITH_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=DIR|yes|no|check],
    [build libtutti.so for this MPI: its folder, or its mpicc @<:@check@:>@])], [], [with_mpi=check])
  tutti_have_mpi=no tutti_wrapper= tutti_mpi_cppflags= tutti_mpi_libs= tutti_mpi_bin= tutti_mpi_suffix=
  AS_CASE([$with_mpi],
    [no], [tutti_where="(not looked for)"],
    [yes|check], [
      tutti_where="mpicc (\$MPICC, or on the path)"
      AC_PATH_PROGS([tutti_wrapper], [$MPICC mpicc])],
    [
      tutti_where="$with_mpi/bin/mpicc, a wrapper $with_mpi, or $with_mpi/include/mpi.h with libmpi or libmpich in $with_mpi/lib or the folder above"
      tutti_name=`basename "$with_mpi"`
      AS_IF([test -f "$with_mpi" && test -x "$with_mpi"], [tutti_wrapper=$with_mpi],
        [test -x "$with_mpi/bin/mpicc"], [tutti_wrapper=$with_mpi/bin/mpicc],
        [test -r "$with_mpi/include/mpi.h"], [
          tutti_mpi_cppflags=-I$with_mpi/include
          for tutti_file in "$with_mpi"/lib/libmpi.so "$with_mpi"/lib64/libmpi.so "$with_mpi"/lib/libmpich.so \
              "$with_mpi/../lib$tutti_name.so"; do
            AS_IF([test -r "$tutti_file"], [
              tutti_mpi_libs="-L`dirname "$tutti_file"` -l`basename "$tutti_file" .so | sed s/^lib//`"
              tutti_mpi_suffix=.$tutti_name
              tutti_have_mpi=try
              break])
          done])])
  AS_IF([test -n "$tutti_wrapper"], [
    TUTTI_MPI_WRAPPER([$tutti_wrapper])
    tutti_have_mpi=try
    tutti_mpi_bin=`dirname "$tutti_wrapper"`/
    tutti_mpi_suffix=`basename "$tutti_wrapper" | sed 's/^mpicc//'`])
  AS_IF([test "$tutti_have_mpi" = try], [
    # The C++ bindings of old headers would need a library of their own.
    tutti_mpi_cppflags="-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $tutti_mpi_cppflags"
    AC_MSG_CHECKING([whether a program links with $tutti_mpi_libs])
    TUTTI_TRY_LINK([tutti_have_mpi], [$tutti_mpi_cppflags], [$tutti_mpi_libs],
      [[#include <mpi.h>
#if MPI_VERSION < 3
#error "MPI 3 is needed"
#endif]],
      [[return PMPI_Init(nullptr, nullptr);]])
    AC_MSG_RESULT([$tutti_have_mpi])
    AS_IF([test "$tutti_have_mpi" = no],
      [tutti_where="<mpi.h> of MPI 3 or later that compiles and links with $tutti_mpi_cppflags $tutti_mpi_libs (as ${tutti_wrapper:-$with_mpi} says)"])])
  MPI_FLAVOR=other
  AS_IF([test "$tutti_have_mpi" = yes], [
    tutti_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$tutti_mpi_cppflags $CPPFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#ifndef OMPI_MAJOR_VERSION
#error "not Open MPI"
#endif]])], [MPI_FLAVOR=openmpi])
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#ifndef MPICH_VERSION
#error "not MPICH"
#endif]])], [MPI_FLAVOR=mpich])
    CPPFLAGS=$tutti_saved_CPPFLAGS
    # Tests compile and start programs with the tools that lie beside the wrapper; those of another folder
    # would be another MPI's.
    tutti_mpi_path=${tutti_mpi_bin:-$PATH}
    AC_PATH_PROG([MPICC], [mpicc$tutti_mpi_suffix], [], [$tutti_mpi_path])
    AC_PATH_PROGS([MPIFC], [mpifort$tutti_mpi_suffix mpif90$tutti_mpi_suffix], [], [$tutti_mpi_path])
    AC_PATH_PROGS([MPIEXEC], [mpirun$tutti_mpi_suffix mpiexec$tutti_mpi_suffix], [], [$tutti_mpi_path])
    tutti_said_mpi="$MPI_FLAVOR (${tutti_wrapper:-$with_mpi})"
    MPI_CPPFLAGS=$tutti_mpi_cppflags MPI_LIBS=$tutti_mpi_libs],
    [TUTTI_MISSING([mpi], [$tutti_where], [libopenmpi-dev or libmpich-dev])])
  AC_SUBST([MPI_CPPFLAGS])
  AC_SUBST([MPI_LIBS])
  AC_SUBST([MPI_FLAVOR])
  AC_SUBST([MPICC])
  AC_SUBST([MPIFC])
  AC_SUBST([MPIEXEC])
  AM_CONDITIONAL([WITH_MPI], [test "$tutti_have_mpi" = yes])
])

# TUTTI_CUDA_TRY(folder): a toolkit is nvcc and cuda.h; the driver's library is opened at run time, so neither
# it nor its stub is looked for. cuda.h lies in include, or for another CPU in targets/CPU-linux/include.
AC_DEFUN([TUTTI_CUDA_TRY], [
  AS_IF([test "$tutti_have_cuda" = no && test -d "$1"], [
    for tutti_nvcc in "$1/bin/nvcc" "$1/compilers/bin/nvcc"; do
      for tutti_include in "$1/targets/$tutti_cuda_target/include" "$1/include" "$1/cuda/include"; do
        AS_IF([test "$tutti_have_cuda" = no && test -x "$tutti_nvcc" && test -r "$tutti_include/cuda.h"],
          [tutti_have_cuda=try NVCC=$tutti_nvcc CUDA_CPPFLAGS="-isystem $tutti_include" tutti_cuda_dir=$1])
      done
    done])
])

# TUTTI_WITH_CUDA(least version): sets NVCC, CUDA_CPPFLAGS and CUDA_GENCODE.
AC_DEFUN([TUTTI_WITH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR|yes|no|check],
    [build the CUDA module with this toolkit >= $1 @<:@check@:>@])], [], [with_cuda=check])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [architectures that the kernels are compiled for, PTX for the last @<:@80,90,100@:>@])],
    [], [with_cuda_arch=80,90,100])
  AS_CASE([$host_cpu], [aarch64*], [tutti_cuda_target=sbsa-linux], [tutti_cuda_target=$host_cpu-linux])
  tutti_have_cuda=no NVCC= CUDA_CPPFLAGS= CUDA_GENCODE=
  AS_CASE([$with_cuda],
    [no], [tutti_where="(not looked for)"],
    [yes|check], [
      tutti_where="bin/nvcc and include/cuda.h of a CUDA toolkit >= $1 in \$CUDA_HOME, \$CUDA_PATH, above nvcc on the path, /usr/local/cuda, /usr/local/cuda-*, or /usr"
      TUTTI_CUDA_TRY([$CUDA_HOME])
      TUTTI_CUDA_TRY([$CUDA_PATH])
      AC_PATH_PROG([tutti_path_nvcc], [nvcc])
      # nvcc on the path may be a link into the toolkit.
      AS_IF([test -n "$tutti_path_nvcc"], [
        tutti_folder=`dirname "$tutti_path_nvcc"`/..
        TUTTI_CUDA_TRY([$tutti_folder])
        tutti_real=`readlink -f "$tutti_path_nvcc"`
        tutti_folder=`dirname "$tutti_real"`/..
        TUTTI_CUDA_TRY([$tutti_folder])])
      TUTTI_CUDA_TRY([/usr/local/cuda])
      for tutti_folder in `ls -d /usr/local/cuda-* 2>/dev/null | sort -rV`; do
        TUTTI_CUDA_TRY([$tutti_folder])
      done
      TUTTI_CUDA_TRY([/usr])],
    [
      tutti_where="bin/nvcc and include/cuda.h (or targets/$tutti_cuda_target/include/cuda.h) of a CUDA toolkit >= $1 in $with_cuda"
      TUTTI_CUDA_TRY([$with_cuda])])
  AS_IF([test "$tutti_have_cuda" = try], [
    AC_MSG_CHECKING([the version of $NVCC])
    tutti_cuda_version=`"$NVCC" --version 2>/dev/null | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
    AC_MSG_RESULT([${tutti_cuda_version:-it does not say}])
    AS_VERSION_COMPARE([${tutti_cuda_version:-0}], [$1],
      [tutti_have_cuda=no tutti_where="$tutti_where (there is ${tutti_cuda_version:-no version} in $tutti_cuda_dir)"],
      [tutti_have_cuda=yes], [tutti_have_cuda=yes])])
  AS_IF([test "$tutti_have_cuda" = yes], [
    tutti_archs= tutti_last_arch=
    for tutti_arch in `echo "$with_cuda_arch" | tr , ' '`; do
      AS_IF(["$NVCC" --list-gpu-arch 2>/dev/null | grep -q "^compute_$tutti_arch\$"], [
        CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$tutti_arch,code=sm_$tutti_arch"
        tutti_archs="$tutti_archs $tutti_arch" tutti_last_arch=$tutti_arch],
        [AC_MSG_WARN([$NVCC $tutti_cuda_version does not know architecture $tutti_arch: left out])])
    done
    AS_IF([test -z "$tutti_last_arch"],
      [AC_MSG_ERROR([none of the architectures --with-cuda-arch=$with_cuda_arch is known to $NVCC $tutti_cuda_version])])
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$tutti_last_arch,code=compute_$tutti_last_arch"
    tutti_said_cuda="$tutti_cuda_version ($tutti_cuda_dir, architectures$tutti_archs)"],
    [TUTTI_MISSING([cuda], [$tutti_where], [nvidia-cuda-toolkit (or the vendor's cuda-toolkit)])])
  AC_SUBST([NVCC])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_GENCODE])
  AM_CONDITIONAL([WITH_CUDA], [test "$tutti_have_cuda" = yes])
])
