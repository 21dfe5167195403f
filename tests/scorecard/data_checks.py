"""Data sets: D of the scorecard."""

from scorecard.card import Check, Mutant

HERE = "tests/scorecard/test_data.py"
VALIDATION = "tests/data/validation/test_validation.py"
LOADER = "tests/data/loading/test_dataloader.py"
READING = "tests/data/io/test_image_and_map_readers.py"
NYU = "tests/data/datasets/depth/test_nyu.py"

CHECKS: tuple[Check, ...] = (
    Check(
        "D1",
        "16 kinds of damaged, missing, doubled or misread files in one data set; a flipped bit in each of 20 files",
        "check-data names 16 of 16 with path and reason in one pass before anything is built; --hash every flip",
        "ultralytics' verify_image_depth: about 8 of 16",
        (
            f"{VALIDATION}::test_all_16_errors_are_found_in_one_pass_with_path_and_reason",
            f"{VALIDATION}::test_the_command_validates_a_folder_and_writes_its_report",
            f"{VALIDATION}::test_the_command_takes_a_config_and_looks_before_anything_is_built",
            f"{VALIDATION}::test_a_second_run_takes_statistics_from_the_cache_by_content",
            f"{HERE}::test_recorded_sums_tell_every_flip_also_behind_the_cache",
        ),
        (
            Mutant(
                "a JPEG must have its end",
                "densevit/data/io/images.py",
                'if self.format == "JPEG" and self.data.find(b"\\xff\\xd9", self.scan) < 0:',
                "if False:",
                f"{READING}::test_a_jpeg_that_lacks_its_last_bytes_is_refused",
            ),
            Mutant(
                "files are compared with recorded sums",
                "densevit/data/validation/checksums.py",
                "            if recorded.get(path, digest) != digest:\n",
                "            if False:\n",
                f"{HERE}::test_recorded_sums_tell_every_flip_also_behind_the_cache",
            ),
            Mutant(
                "errors end check-data with 2",
                "densevit/cli/commands/check_data.py",
                "    return 0 if report.ok else 2\n",
                "    return 0\n",
                f"{VALIDATION}::test_the_command_validates_a_folder_and_writes_its_report",
            ),
        ),
    ),
    Check(
        "D2",
        "a file turns bad in the middle of an epoch",
        "error: path and index in the first line, the steps so far saved; skip: a deterministic substitute, counted; "
        "an end above max_bad, and as many steps on every process",
        "timm: 20 retries of the next index",
        (
            "tests/engine/test_trainer.py::test_a_training_image_that_turns_bad_costs_no_step",
            f"{LOADER}::test_an_unreadable_sample_is_named_in_the_first_line",
            f"{LOADER}::test_a_skipped_sample_is_replaced_by_the_next_in_order_and_counted",
            f"{LOADER}::test_too_many_skipped_samples_end_the_run_and_its_workers",
            f"{HERE}::test_a_file_that_turns_bad_ends_the_run_and_is_named_first",
            f"{HERE}::test_two_processes_take_the_same_steps_when_one_skips_a_file",
            f"{HERE}::test_too_many_bad_files_on_one_process_end_both",
        ),
        (
            Mutant(
                "what was done is saved before an error ends the run",
                "densevit/engine/checkpointer.py",
                "                self._try_to_save(undo=undo)\n",
                "                pass\n",
                "tests/engine/test_trainer.py::test_a_training_image_that_turns_bad_costs_no_step",
            ),
            Mutant(
                "errors of reading name the sample",
                "densevit/data/loading/dataloader.py",
                '        raise DataError(f"{describe(dataset, index)}: {error}") from error\n',
                "        raise\n",
                f"{LOADER}::test_an_unreadable_sample_is_named_in_the_first_line",
            ),
            Mutant(
                "there is an end to skipping",
                "densevit/data/loading/dataloader.py",
                "            if self.skipped[epoch] > self.allowed:\n",
                "            if False:\n",
                f"{LOADER}::test_too_many_skipped_samples_end_the_run_and_its_workers",
            ),
            Mutant(
                "the look before the first step passes over what may be skipped",
                "densevit/data/sanity_checks.py",
                '        if on_corrupt == "raise":\n',
                "        if True:\n",
                f"{HERE}::test_two_processes_take_the_same_steps_when_one_skips_a_file",
            ),
        ),
    ),
    Check(
        "D3",
        "300 damaged files of each of 13 formats, read in forked children",
        "no signal, none takes over 30 s; every outcome an array or a DataError that names the file",
        "Pillow and OpenCV: no crash; torchvision: 100 of 100 segmentation faults",
        (
            f"{HERE}::test_no_damaged_file_of_any_format_ends_or_holds_up_its_reader",
            f"{READING}::test_no_truncated_file_is_read_as_whole",
        ),
        (
            Mutant(
                "whatever a header's parser raises becomes a DataError",
                "densevit/data/io/images.py",
                "        except Exception as error:  # a parser over damaged bytes raises anything,",
                "        except KeyError as error:  # a parser over damaged bytes raises anything,",
                f"{HERE}::test_no_damaged_file_of_any_format_ends_or_holds_up_its_reader",
            ),
            Mutant(
                "whatever the reader of an array raises becomes a DataError",
                "densevit/data/io/arrays.py",
                "    except Exception as error:  # parsers over damaged bytes raise anything;",
                "    except KeyError as error:  # parsers over damaged bytes raise anything;",
                f"{READING}::test_no_truncated_file_is_read_as_whole",
            ),
        ),
    ),
    Check(
        "D4",
        "a loader worker is killed, crashes, or hangs",
        "an error within the time limit that names the files it was reading; exit code 2; no process is left",
        "torch's DataLoader: names the pid",
        (
            f"{HERE}::test_a_worker_that_ends_or_hangs_is_told_with_its_files_and_leaves_nothing",
            f"{LOADER}::test_closing_does_not_wait_for_a_stuck_worker",
        ),
        (
            Mutant(
                "a worker's death is noticed",
                "densevit/data/loading/workers.py",
                "                if dead:\n",
                "                if False:\n",
                f"{LOADER}::test_a_killed_worker_is_an_error_that_names_what_it_read",
            ),
            Mutant(
                "the message names the files",
                "densevit/data/loading/dataloader.py",
                "describe=partial(describe_with_files, dataset)",
                "describe=partial(describe, dataset)",
                f"{HERE}::test_a_worker_that_ends_or_hangs_is_told_with_its_files_and_leaves_nothing",
            ),
        ),
    ),
    Check(
        "D5",
        "an HDF5 file read by 0, 2 and 4 workers, pickled, forked, truncated, flipped, or without its arrays",
        "equal arrays; faults named by the examination; what densevit writes carries checksums",
        "h5py: errors; nobody tests forks",
        (
            f"{HERE}::test_an_hdf5_file_reads_alike_with_any_number_of_workers",
            f"{HERE}::test_a_flip_in_an_hdf5_file_is_told_by_the_examination",
            f"{HERE}::test_every_hdf5_file_of_ours_has_checksums",
            f"{NYU}::test_a_pickled_reader_carries_no_handle_and_reads_the_same",
            f"{NYU}::test_a_forked_worker_opens_the_file_for_itself",
            f"{NYU}::test_a_bad_mat_is_a_data_error_that_names_it",
        ),
        (
            Mutant(
                "each process opens the file for itself",
                "densevit/data/datasets/depth/nyu/mat_file.py",
                "if self._handle is None or self._pid != os.getpid():",
                "if self._handle is None:",
                f"{NYU}::test_a_forked_worker_opens_the_file_for_itself",
            ),
            Mutant(
                "repacked files carry checksums",
                "densevit/data/prepare/repack_nyu.py",
                '"shuffle": True, "fletcher32": True}',
                '"shuffle": True}',
                f"{HERE}::test_a_flip_in_an_hdf5_file_is_told_by_the_examination",
            ),
        ),
    ),
)
