#include "mpi/pairing.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

namespace tutti::mpi {
namespace {

using Family = Release::Family;

void expect(const Release& release, Family family, int major, int minor, int patch) {
  EXPECT_EQ(release.family, family);
  EXPECT_EQ(release.major, major);
  EXPECT_EQ(release.minor, minor);
  EXPECT_EQ(release.patch, patch);
}

TEST(Pairing, ReadsWhatLibrariesSayOfThemselves) {
  expect(read_release("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4"),
         Family::open_mpi, 4, 1, 4);
  expect(read_release("Open MPI v5.0.11, package: x"), Family::open_mpi, 5, 0, 11);
  expect(read_release("Open MPI v5.1.0rc1, package"), Family::open_mpi, 5, 1, 0);
  expect(read_release("MPICH Version:      4.0.2\nMPICH Release date: Thu Apr\n"), Family::mpich, 4,
         0, 2);
  expect(read_release("MPICH Version:\t5.0.2\n"), Family::mpich, 5, 0, 2);
  for (const char* strange : {"", "Intel(R) MPI Library 2021.9", "Open MPI v", "MPICH Version:"}) {
    const Release release = read_release(strange);
    EXPECT_EQ(release.major, 0) << strange;
  }
}

TEST(Pairing, AnOlderBuildRunsOnANewerReleaseAndNotTheOtherWayRound) {
  const Release old{Family::mpich, 4, 0, 2}, young{Family::mpich, 5, 0, 1};
  EXPECT_EQ(misfit(old, young, ""), "");
  EXPECT_EQ(misfit(old, old, ""), "");
  EXPECT_EQ(misfit({Family::mpich, 4, 0, 3}, old, ""), "") << "patch releases are alike";
  const std::string why = misfit(young, old, "");
  EXPECT_NE(why.find("MPICH 5.0.1"), std::string::npos) << why;
  EXPECT_NE(why.find("MPICH 4.0.2"), std::string::npos) << why;
}

TEST(Pairing, AnotherFamilyIsNamed) {
  const std::string why =
      misfit({Family::open_mpi, 4, 1, 4}, {Family::mpich, 4, 1, 4}, "MPICH Version: 4.1.4\nmore");
  EXPECT_NE(why.find("Open MPI 4.1.4"), std::string::npos) << why;
  EXPECT_NE(why.find("\"MPICH Version: 4.1.4\""), std::string::npos) << why;
  EXPECT_NE(misfit({Family::mpich, 4, 0, 0}, read_release("Some MPI 3"), "Some MPI 3"), "");
}

TEST(Pairing, HandlesOfTheStandardAreToldFromOthers) {
  EXPECT_FALSE(has_standard_handles(nullptr));
  EXPECT_FALSE(has_standard_handles([](int* major, int* minor) {
    *major = *minor = -1;
    return MPI_SUCCESS;
  }));
  EXPECT_TRUE(has_standard_handles([](int* major, int* minor) {
    *major = 1;
    *minor = 0;
    return MPI_SUCCESS;
  }));
  EXPECT_FALSE(built_with_standard_handles());
  EXPECT_NE(misfit_of_handles().find("libmpi_abi"), std::string::npos);
}

TEST(Pairing, ThisBuildRunsOnItself) {
  const Release built = built_with();
  EXPECT_NE(built.family, Family::other);
  EXPECT_GT(built.major, 2);
  EXPECT_EQ(misfit(built, built, ""), "");
}

}  // namespace
}  // namespace tutti::mpi
