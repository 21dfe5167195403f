"""Checkpoints, preemption, numerics and repeatability: C, P, N and R of the scorecard."""

from scorecard.card import Check, Mutant

SAVED = "tests/scorecard/test_checkpoints.py"
STOPPED = "tests/scorecard/test_preemption.py"
AGAIN = "tests/scorecard/test_repeating.py"
MANY = "tests/scorecard/test_processes.py"
REPLAY = "tests/scorecard/test_replaying.py"
GOLDEN = "tests/scorecard/test_golden.py"
FILES = "tests/utils/test_atomic_io.py"
FORMAT = "tests/weights/test_checkpoint.py"
KEPT = "tests/engine/test_checkpointer.py"
LOOP = "tests/engine/test_trainer.py"
FOLDER = "tests/engine/test_run_folder.py"
LOCK = "tests/utils/test_lock.py"
EDGES = "tests/losses/test_edges.py"
METRICS = "tests/evaluation/depth/test_depth_metrics.py"
SCORES = "tests/evaluation/depth/test_evaluate.py"
PROTOCOLS = "tests/evaluation/depth/test_protocols.py"

CHECKS: tuple[Check, ...] = (
    Check(
        "C1",
        "killed while saving, 20 times on each of two file systems",
        "the newest whole checkpoint loads 40 of 40 times, at most one save is lost, nothing is left lying about",
        "rename in place (dinov3, torch DCP); Lightning 6 of 20 corrupt across file systems",
        (
            f"{SAVED}::test_twenty_kills_in_the_middle_of_saving_lose_nothing",
            f"{SAVED}::test_a_kill_between_the_two_renames_of_a_replacement_is_mended",
            f"{FILES}::test_sweep_removes_what_dead_processes_left_and_only_that",
        ),
        (
            Mutant(
                "checkpoints are written beside their place",
                "densevit/utils/atomic_io.py",
                "        temporary = _temporary(path)\n        temporary.mkdir()\n",
                "        temporary = path\n        temporary.mkdir()\n",
                f"{SAVED}::test_twenty_kills_in_the_middle_of_saving_lose_nothing",
            ),
            Mutant(
                "what a dead process set aside is put back",
                "densevit/utils/atomic_io.py",
                "            left.rename(original)\n",
                "            remove(left)\n",
                f"{SAVED}::test_a_kill_between_the_two_renames_of_a_replacement_is_mended",
            ),
        ),
    ),
    Check(
        "C2",
        "the disk is full",
        "what was saved stays and loads; exit code 2; path and bytes are named; no temporary is left",
        "timm: temporary file and replace, untested",
        (
            f"{SAVED}::test_a_full_disk_keeps_what_was_saved_and_names_path_and_bytes",
            f"{SAVED}::test_too_small_a_disk_is_told_before_anything_is_written",
            f"{FILES}::test_a_full_disk_is_named_with_path_and_bytes_and_costs_nothing",
        ),
        (
            Mutant(
                "the room is measured before writing",
                "densevit/weights/checkpoint.py",
                "    atomic_io.require_free_space(folder.parent, num_bytes(weights) + num_bytes(state))\n",
                "",
                f"{SAVED}::test_too_small_a_disk_is_told_before_anything_is_written",
            ),
            Mutant(
                "a write that fails removes its temporary",
                "densevit/utils/atomic_io.py",
                "        if temporary is not None:\n            shutil.rmtree(temporary, ignore_errors=True)\n",
                "        pass\n",
                f"{SAVED}::test_a_full_disk_keeps_what_was_saved_and_names_path_and_bytes",
            ),
        ),
    ),
    Check(
        "C3",
        "one flipped bit, at 80 places over all four files",
        "80 of 80 refused, and the file named",
        "none: 0 of 60 noticed by torch and by safetensors",
        (f"{FORMAT}::test_every_flipped_byte_is_noticed_and_its_file_named",),
        (
            Mutant(
                "files are compared with the sums of the manifest",
                "densevit/weights/checkpoint.py",
                "        if _sha256(folder / name) != expected:\n",
                "        if False:\n",
                f"{FORMAT}::test_every_flipped_byte_is_noticed_and_its_file_named",
            ),
            Mutant(
                "the manifest has a sum of its own",
                "densevit/weights/checkpoint.py",
                "    if with_checksum(content) != text:\n",
                "    if False:\n",
                f"{FORMAT}::test_every_flipped_byte_is_noticed_and_its_file_named",
            ),
        ),
    ),
    Check(
        "C4",
        "the newest checkpoint is truncated, flipped, empty, or lacks a file",
        "auto-resume takes the one before it, with one warning that names both; a named one is that or exit code 2",
        "torchtitan: the newest that has metadata",
        (
            f"{SAVED}::test_resume_takes_the_previous_checkpoint_and_says_so_but_a_named_one_is_that_or_an_error",
            f"{SAVED}::test_going_back_to_an_older_checkpoint_needs_the_later_ones_moved_away",
            f"{SAVED}::test_a_run_without_a_whole_checkpoint_is_not_silently_started_anew",
        ),
        (
            Mutant(
                "auto-resume verifies what it takes",
                "densevit/engine/run_folder.py",
                "            manifest = checkpoint.verify(path)\n",
                "            manifest = checkpoint.unsealed((path / checkpoint.MANIFEST).read_text(), path)\n",
                f"{SAVED}::test_resume_takes_the_previous_checkpoint_and_says_so_but_a_named_one_is_that_or_an_error",
            ),
            Mutant(
                "a run with no whole checkpoint is not started anew",
                "densevit/engine/run_folder.py",
                "    if damaged:\n",
                "    if False:\n",
                f"{SAVED}::test_a_run_without_a_whole_checkpoint_is_not_silently_started_anew",
            ),
            Mutant(
                "going back needs the later checkpoints moved away",
                "densevit/engine/run_folder.py",
                "    if later:",
                "    if False:",
                f"{SAVED}::test_going_back_to_an_older_checkpoint_needs_the_later_ones_moved_away",
            ),
        ),
    ),
    Check(
        "C5",
        "interrupted at three random steps in the middle of an epoch, with 0 and 2 workers, accumulating",
        "weights, average, optimiser, schedule, scaler, random states, best score, images and losses equal bit for bit",
        "torchtitan: losses; Hugging Face: approximately",
        (
            f"{AGAIN}::test_a_run_stopped_at_random_steps_ends_where_one_in_one_piece_does",
            f"{LOOP}::test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does",
        ),
        (
            Mutant(
                "torch's random state is taken up",
                "densevit/utils/seed.py",
                '    torch.set_rng_state(state["torch"])\n',
                '    state["torch"]\n',
                f"{LOOP}::test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does",
            ),
            Mutant(
                "the loader starts at the images seen",
                "densevit/engine/trainer.py",
                "closing(train(state.samples))",
                "closing(train(0))",
                f"{LOOP}::test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does",
            ),
            Mutant(
                "workers draw nothing from the training's generator",
                "densevit/data/loading/workers.py",
                "        generator=torch.Generator(),",
                "        generator=None,",
                f"{AGAIN}::test_a_run_stopped_at_random_steps_ends_where_one_in_one_piece_does[2-fp32]",
            ),
        ),
    ),
    Check(
        "C6",
        "any one item is missing in the saved state: 17 of them",
        "each is refused, and named",
        "none",
        (f"{LOOP}::test_a_state_that_lacks_anything_is_refused_by_name",),
        (
            Mutant(
                "the optimiser's state is checked to be complete",
                "densevit/engine/train_state.py",
                "        for name in expected - entry.keys():\n",
                "        for name in ():\n",
                f"{LOOP}::test_a_state_that_lacks_anything_is_refused_by_name",
            ),
        ),
    ),
    Check(
        "C7",
        "saved on one process, resumed on two, back on one; the save fails on rank 0",
        "weights equal, each sample once, only rank 0 writes, all end together (DDP and FSDP)",
        "dinov3 and DCP for weights; torchtitan refuses the loader",
        (
            f"{MANY}::test_a_run_goes_from_one_process_to_two_and_back",
            f"{SAVED}::test_a_save_that_fails_on_the_first_process_ends_all",
            "tests/data/loading/test_sampler.py::test_changing_the_launch_midway_covers_the_epoch_exactly_once",
            "tests/engine/test_distributed.py::test_two_processes_end_with_the_weights_and_scores_of_one",
        ),
        (
            Mutant(
                "an error on rank 0 is raised everywhere",
                "densevit/utils/process_group.py",
                "        if error is not None:\n            raise error\n        return value[0]\n",
                "        if error is not None and self.is_main:\n            raise error\n        return value[0]\n",
                f"{SAVED}::test_a_save_that_fails_on_the_first_process_ends_all",
            ),
            Mutant(
                "sharded tensors are put together before they are written",
                "densevit/engine/fsdp.py",
                "        tensor = tree.full_tensor()\n",
                "        tensor = tree.to_local()\n",
                f"{MANY}::test_a_run_goes_from_one_process_to_two_and_back[fsdp]",
            ),
            Mutant(
                "whole tensors are laid out as the sharded parameter is",
                "densevit/engine/fsdp.py",
                "value.to(model.device, model.dtype).contiguous()",
                "value.to(model.device, model.dtype)",
                f"{MANY}::test_a_run_goes_from_one_process_to_two_and_back[fsdp]",
            ),
        ),
    ),
    Check(
        "C8",
        "keep_last 0, 1, 3; old checkpoints that cannot be removed; scores that are NaN or tie",
        "best and last stay, the only one until the next has been read back; NaN is never best; a warning at most",
        "torchtitan (refuses 1), Hugging Face's protected set, Lightning (NaN is infinity)",
        (
            f"{KEPT}::test_the_best_and_the_last_stay",
            f"{KEPT}::test_nan_never_is_the_best_and_a_tie_keeps_the_older",
            f"{KEPT}::test_the_only_checkpoint_stays_until_the_next_has_been_read_back",
            f"{KEPT}::test_an_old_checkpoint_that_cannot_be_removed_is_a_warning",
            f"{KEPT}::test_a_damaged_best_gives_way_to_the_next",
        ),
        (
            Mutant(
                "the best is spared",
                "densevit/engine/checkpointer.py",
                "        kept = {newest.resolve(), self.best()}\n",
                "        kept = {newest.resolve()}\n",
                f"{KEPT}::test_the_best_and_the_last_stay",
            ),
            Mutant(
                "NaN is no score",
                "densevit/engine/checkpointer.py",
                "        if math.isnan(new):\n",
                "        if False:\n",
                f"{KEPT}::test_nan_never_is_the_best_and_a_tie_keeps_the_older",
            ),
            Mutant(
                "what was written is read back before anything is removed",
                "densevit/engine/checkpointer.py",
                "        checkpoint.verify(path)\n        self._link",
                "        self._link",
                f"{KEPT}::test_the_only_checkpoint_stays_until_the_next_has_been_read_back",
            ),
        ),
    ),
    Check(
        "C9",
        "a pickle that runs a command, as .pt, .pth, .ckpt, .npz, through five entry points",
        "20 of 20 refused, what it wanted to run is named, nothing ran",
        "timm (one loader)",
        (
            f"{SAVED}::test_a_pickle_that_would_run_code_is_refused_wherever_it_comes_in",
            f"{SAVED}::test_a_pickle_inside_a_checkpoint_of_ours_is_refused_although_its_sum_is_right",
            f"{FORMAT}::test_a_pickle_that_would_run_code_is_refused_and_does_not",
        ),
        (
            Mutant(
                "torch reads weights only",
                "densevit/weights/readers.py",
                "weights_only=True",
                "weights_only=False",
                f"{FORMAT}::test_a_pickle_that_would_run_code_is_refused_and_does_not",
            ),
            Mutant(
                "NumPy reads no pickles",
                "densevit/weights/readers.py",
                "allow_pickle=False",
                "allow_pickle=True",
                f"{SAVED}::test_a_pickle_that_would_run_code_is_refused_wherever_it_comes_in[predict-.npz]",
            ),
        ),
    ),
    Check(
        "C10",
        "weights of another head, encoder, depth, patch or image size; prefixes; no checkpoint; no such path",
        "prefixes go; else exit code 2 with counts and the first five; a path that is not there gets its neighbours",
        "fvcore's report (goes on), DCP (strict)",
        (
            f"{SAVED}::test_weights_that_do_not_fit_are_refused_with_counts_and_names",
            f"{SAVED}::test_prefixes_of_launchers_are_taken_off_and_what_is_no_checkpoint_is_told",
            f"{FORMAT}::test_a_misfit_is_reported_with_counts_names_and_shapes",
        ),
        (
            Mutant(
                "loading is strict",
                "densevit/utils/state_dict.py",
                "    if report:\n",
                "    if False:\n",
                f"{FORMAT}::test_a_misfit_is_reported_with_counts_names_and_shapes",
            ),
            Mutant(
                "prefixes of launchers are taken off",
                "densevit/weights/readers.py",
                'PREFIXES = ("module.", "_orig_mod.")',
                "PREFIXES: tuple[str, ...] = ()",
                f"{SAVED}::test_prefixes_of_launchers_are_taken_off_and_what_is_no_checkpoint_is_told",
            ),
        ),
    ),
    Check(
        "C11",
        "a second training starts into the output of one that runs, or of one that was killed",
        "the first: exit code 2 before data is read, naming host, process and start; the second goes on at once",
        "none: all overwrite",
        (
            f"{FOLDER}::test_a_second_training_into_one_output_is_refused_before_the_data_is_read",
            f"{FOLDER}::test_a_killed_run_is_resumed_at_once_and_says_where_it_goes_on",
            f"{FOLDER}::test_a_start_that_fails_leaves_no_folder",
            f"{LOCK}::test_of_many_at_once_one_gets_the_lock_also_when_it_is_a_dead_ones",
            f"{LOCK}::test_a_lock_of_another_machine_with_a_heartbeat_is_respected",
            f"{LOCK}::test_a_lock_of_another_machine_is_taken_when_its_heartbeat_has_stopped",
        ),
        (
            Mutant(
                "the lock is created exclusively",
                "densevit/utils/lock.py",
                "os.O_CREAT | os.O_EXCL | os.O_WRONLY",
                "os.O_CREAT | os.O_WRONLY",
                f"{FOLDER}::test_a_second_training_into_one_output_is_refused_before_the_data_is_read",
            ),
            Mutant(
                "only the lock that was examined is removed",
                "densevit/utils/lock.py",
                "if (self._touched(), self._read()) == (touched, owner):",
                "if True:",
                f"{LOCK}::test_a_lock_that_changed_hands_meanwhile_is_not_removed",
            ),
            Mutant(
                "a heartbeat keeps the lock",
                "densevit/utils/lock.py",
                "                    os.utime(self.path)\n",
                "                    pass\n",
                f"{LOCK}::test_a_lock_of_another_machine_with_a_heartbeat_is_respected",
            ),
        ),
    ),
    Check(
        "P1",
        "SIGTERM to the whole process group, two workers, at ten random times",
        "10 of 10 saved at the current step with exit code 75; going on is bit-equal (C5)",
        "Hugging Face, opt-in; with a plain loader 4 of 6",
        (f"{STOPPED}::test_sigterm_to_the_whole_group_at_ten_random_times_saves_the_step_and_ends_with_75",),
        (
            Mutant(
                "workers leave signals to their parent",
                "densevit/data/loading/workers.py",
                "HANDLED_BY_PARENT = {signal.SIGINT, signal.SIGTERM}",
                "HANDLED_BY_PARENT: set[signal.Signals] = set()",
                f"{STOPPED}::test_sigterm_to_the_whole_group_at_ten_random_times_saves_the_step_and_ends_with_75",
            ),
            Mutant(
                "a stop is saved",
                "densevit/engine/trainer.py",
                "                if stopping or self._due(self.run.save_every):\n",
                "                if self._due(self.run.save_every):\n",
                f"{STOPPED}::test_sigterm_at_any_stage_of_training_loses_nothing[first step]",
            ),
        ),
    ),
    Check(
        "P2",
        "SIGTERM while building, in the first step, validating, saving, scanning, predicting, scoring; a second SIGINT",
        "saved, or said that there is nothing to save; no partial file; exit code 75; the second ends within a second",
        "Lightning (training and validation)",
        (
            f"{STOPPED}::test_sigterm_at_any_stage_of_training_loses_nothing",
            f"{STOPPED}::test_sigterm_during_a_scan_of_the_data_ends_it_with_75",
            f"{STOPPED}::test_sigterm_during_prediction_leaves_whole_maps",
            f"{STOPPED}::test_sigterm_during_scoring_writes_no_report",
            f"{STOPPED}::test_a_second_signal_ends_at_once_even_what_python_cannot_interrupt",
        ),
        (
            Mutant(
                "validation looks for the signal",
                "densevit/engine/validation.py",
                "            if stopping:\n",
                "            if False:\n",
                f"{STOPPED}::test_sigterm_at_any_stage_of_training_loses_nothing[validating]",
            ),
            Mutant(
                "a scan looks for the signal",
                "densevit/utils/signals.py",
                "    if listener is not None and listener.asked.is_set():\n",
                "    if False:\n",
                f"{STOPPED}::test_sigterm_during_a_scan_of_the_data_ends_it_with_75",
            ),
            Mutant(
                "a thread hears the second signal",
                "densevit/utils/signals.py",
                "        if seen == 2:\n",
                "        if False:\n",
                f"{STOPPED}::test_a_second_signal_ends_at_once_even_what_python_cannot_interrupt",
            ),
        ),
    ),
    Check(
        "P3",
        "SIGTERM to one of two processes, in a step or in validation",
        "both stop at the same step with one checkpoint and the same exit code",
        "Lightning #20825 (broadcast); pocket-tts (all-reduce)",
        (
            f"{STOPPED}::test_sigterm_to_one_of_two_processes_stops_both_at_the_same_step",
            f"{STOPPED}::test_a_stop_in_the_validation_of_one_of_two_processes_is_taken_up_there",
        ),
        (
            Mutant(
                "all agree to stop",
                "densevit/engine/distributed.py",
                "        return not any_failed, bool(any_stop)\n",
                "        return not any_failed, stop\n",
                f"{STOPPED}::test_a_stop_in_the_validation_of_one_of_two_processes_is_taken_up_there",
            ),
        ),
    ),
    Check(
        "P4",
        "torchrun --max-restarts 1; rank 1 dies at step 7",
        "it restarts, resumes, and ends with the weights of a run that did not die, bit for bit",
        "torchtitan's contract, without a CPU test",
        (
            f"{MANY}::test_torchrun_restarts_a_run_whose_process_died_and_it_ends_as_if_it_had_not",
            "tests/engine/test_distributed.py::test_restarted_processes_do_not_read_the_addresses_of_the_dead",
        ),
        (
            Mutant(
                "restarted processes do not read the addresses of the dead",
                "densevit/engine/distributed.py",
                "    if local_size == size:\n",
                "    if False:\n",
                "tests/engine/test_distributed.py::test_restarted_processes_do_not_read_the_addresses_of_the_dead",
            ),
            Mutant(
                "the log is cut to where the run goes on",
                "densevit/engine/logger.py",
                '                _cut(folder / f"{name}.csv", start)\n',
                "                pass\n",
                f"{MANY}::test_torchrun_restarts_a_run_whose_process_died_and_it_ends_as_if_it_had_not",
            ),
        ),
    ),
    Check(
        "N1",
        "13 inputs that break published losses, in three formats, for every loss",
        "loss and gradient finite, an empty mask exactly 0, fp32 is fp64 within 1e-4, gradients are derivatives",
        "UniDepth (fp32, masked variance); dinov3 (perfect prediction)",
        (
            f"{EDGES}::test_value_and_gradient_are_finite_on_every_edge",
            f"{EDGES}::test_an_empty_batch_is_exactly_zero_and_attached_to_the_graph",
            f"{EDGES}::test_fp32_equals_fp64",
            f"{EDGES}::test_the_gradient_is_the_derivative",
            "tests/losses/test_image_level_losses.py::test_a_batch_without_any_class_costs_nothing_and_keeps_the_graph",
            "tests/losses/test_segmentation_losses.py::test_losses_and_gradients_are_finite_and_exactly_0_without_labels",
        ),
        (
            Mutant(
                "a little under the root of silog",
                "densevit/losses/silog.py",
                "(square + EPS).sqrt()",
                "square.sqrt()",
                f"{EDGES}::test_value_and_gradient_are_finite_on_every_edge",
            ),
            Mutant(
                "truth that is not finite does not count",
                "densevit/losses/masked_reduction.py",
                "valid & target.isfinite() & (target > 0)",
                "valid & (target > 0)",
                f"{EDGES}::test_value_and_gradient_are_finite_on_every_edge",
            ),
        ),
    ),
    Check(
        "N2",
        "NaN or infinity in the loss, an image or a gradient; then a hundredfold loss for five steps",
        "no trace in weights, statistics, average, optimiser, rate; counted, named; exit code 4; a replay repeats it",
        "torchtitan (before the step); lightly-train (replay); Lightning (spikes)",
        (
            f"{LOOP}::test_a_step_that_is_not_finite_changes_nothing_and_is_counted",
            f"{LOOP}::test_a_step_that_is_not_finite_leaves_no_trace",
            f"{LOOP}::test_a_loss_that_leaves_its_course_is_told_with_its_images_and_counted",
            f"{LOOP}::test_too_many_bad_steps_in_a_row_end_the_run_and_keep_the_last_good_checkpoint",
            f"{REPLAY}::test_bad_steps_are_named_counted_and_recorded_and_end_the_run_with_4",
            f"{REPLAY}::test_a_recorded_step_goes_wrong_again_bit_for_bit",
            f"{REPLAY}::test_a_replay_on_other_images_says_that_it_differs",
            f"{REPLAY}::test_the_part_of_either_process_can_be_done_again",
        ),
        (
            Mutant(
                "a step that is not finite is not taken",
                "densevit/engine/trainer.py",
                "        step_unless(self.optimizer, flags[0])\n",
                "        step_unless(self.optimizer, 0 * flags[0])\n",
                f"{LOOP}::test_a_step_that_is_not_finite_leaves_no_trace",
            ),
            Mutant(
                "statistics of norms are put back",
                "densevit/engine/trainer.py",
                "        state.restore_statistics(flags[0])\n",
                "",
                f"{LOOP}::test_a_step_that_is_not_finite_leaves_no_trace",
            ),
            Mutant(
                "the schedule moves with real steps only",
                "densevit/engine/trainer.py",
                "        lr = self.learning_rate(state.updates)\n",
                "        lr = self.learning_rate(state.step)\n",
                f"{LOOP}::test_a_step_that_is_not_finite_changes_nothing_and_is_counted",
            ),
            Mutant(
                "too many bad steps end the run",
                "densevit/engine/monitors.py",
                "    if in_row > (limit or MAX_SKIPPED[precision]):\n",
                "    if False:\n",
                f"{LOOP}::test_too_many_bad_steps_in_a_row_end_the_run_and_keep_the_last_good_checkpoint",
            ),
            Mutant(
                "the random state before the step is recorded",
                "densevit/engine/trainer.py",
                "            tensors = self.forward_backward_step(batches)\n",
                "            tensors = self.forward_backward_step(batches)\n        state.begin_step()\n",
                f"{REPLAY}::test_a_recorded_step_goes_wrong_again_bit_for_bit",
            ),
        ),
    ),
    Check(
        "N3",
        "NaN on rank 1 only",
        "both skip the step, weights are those of one process, nothing hangs (DDP and FSDP)",
        "torchtitan (all-reduce)",
        (f"{MANY}::test_a_nan_on_one_of_two_processes_skips_the_step_on_both",),
        (
            Mutant(
                "all agree that a step is good",
                "densevit/engine/distributed.py",
                "            dist.all_reduce(values, op=dist.ReduceOp.MAX)\n",
                "            pass\n",
                f"{MANY}::test_a_nan_on_one_of_two_processes_skips_the_step_on_both[ddp]",
            ),
        ),
    ),
    Check(
        "N4",
        "fp16: six overflows, then more than the limit",
        "skips are counted in the log; schedule and average stand still; over the limit exit code 4, hint at bf16",
        "Hugging Face's accelerate; detectron2 logs the scale",
        (f"{LOOP}::test_fp16_overflow_is_skipped_and_counted_and_moves_no_schedule",),
        (
            Mutant(
                "under fp16 more overflows are forgiven",
                "densevit/engine/monitors.py",
                'MAX_SKIPPED = {"fp16": 12,',
                'MAX_SKIPPED = {"fp16": 3,',
                f"{LOOP}::test_fp16_overflow_is_skipped_and_counted_and_moves_no_schedule",
            ),
            Mutant(
                "the hint names what to do",
                "densevit/engine/monitors.py",
                'HINTS = {"fp16": "try precision=bf16"}',
                "HINTS: dict[str, str] = {}",
                f"{LOOP}::test_fp16_overflow_is_skipped_and_counted_and_moves_no_schedule",
            ),
        ),
    ),
    Check(
        "N5",
        "weights become NaN before a save",
        "the save is refused with step and names, and the last good checkpoint stays the newest",
        "ultralytics #24986 (repairs); pocket-tts",
        (
            f"{LOOP}::test_weights_that_are_not_finite_are_not_saved_and_the_last_good_ones_stay",
            f"{FORMAT}::test_weights_that_are_not_finite_are_never_saved",
        ),
        (
            Mutant(
                "what is not finite is not saved",
                "densevit/weights/checkpoint.py",
                "    if bad:\n",
                "    if False:\n",
                f"{LOOP}::test_weights_that_are_not_finite_are_not_saved_and_the_last_good_ones_stay",
            ),
        ),
    ),
    Check(
        "N6",
        "no truth; predictions that are constant, NaN, infinite, not positive, bf16; one pixel; two processes",
        "computed in fp64; what is left out or replaced is counted; silog is never negative; shards equal the whole",
        "none complete",
        (
            f"{METRICS}::test_silog_of_nearly_constant_ratios_is_never_negative_nor_nan",
            f"{METRICS}::test_a_perfect_pixel_scores_perfectly",
            f"{SCORES}::test_images_without_truth_are_named_and_weigh_nothing",
            f"{SCORES}::test_invalid_and_resized_predictions_are_counted",
            f"{SCORES}::test_a_padded_duplicate_is_refused",
            f"{PROTOCOLS}::test_unusable_predictions_are_clamped_as_published_and_counted",
            f"{PROTOCOLS}::test_half_precision_predictions_are_scored_in_double",
            f"{MANY}::test_two_processes_validate_to_the_scores_of_one",
        ),
        (
            Mutant(
                "an image that comes twice is refused",
                "densevit/evaluation/records.py",
                "        if name in found:\n",
                "        if False:\n",
                f"{SCORES}::test_a_padded_duplicate_is_refused",
            ),
        ),
    ),
    Check(
        "R1",
        "the same seed twice, with 0, 1, 2 and 4 workers",
        "weights, random states and images equal bit for bit",
        "torchtitan (deterministic) with grain",
        (
            f"{AGAIN}::test_the_same_seed_gives_the_same_weights_with_any_number_of_workers",
            f"{AGAIN}::test_another_seed_gives_other_weights",
            "tests/data/loading/test_dataloader.py::test_the_stream_is_the_same_bit_for_bit_for_any_number_of_workers",
        ),
        (
            Mutant(
                "augmentation is seeded by the sample's place",
                "densevit/data/loading/dataloader.py",
                "np.random.default_rng((self.seed, *key))",
                "np.random.default_rng()",
                f"{AGAIN}::test_the_same_seed_gives_the_same_weights_with_any_number_of_workers",
            ),
        ),
    ),
    Check(
        "R2",
        "a change in any number of twenty steps, scores or predictions of each task; checkpoints of every schema",
        "equal to 1e-5; old checkpoints load and predict what they did",
        "torchtitan's golden losses and compatibility script",
        (
            f"{GOLDEN}::test_twenty_steps_of_each_task_give_the_golden_numbers",
            f"{GOLDEN}::test_checkpoints_of_every_schema_load_and_predict_what_they_did",
            f"{GOLDEN}::test_every_schema_that_this_version_reads_is_kept_here",
        ),
        (
            Mutant(
                "the decay of the average starts low",
                "densevit/engine/ema.py",
                "        decay = min(self.decay, (1 + updates) / (10 + updates))\n",
                "        decay = self.decay\n",
                f"{GOLDEN}::test_twenty_steps_of_each_task_give_the_golden_numbers[depth]",
            ),
        ),
    ),
)
